"""Settings in words (a tight pool, a window of a page): they keep their sense at every page size, and in every server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz.schedule import Setting
from kvproof.conformance.fuzz.target import Target

AMPLE, ENOUGH, TIGHT, HOPELESS = POOLS = ("ample", "enough", "tight", "hopeless")
CHUNKS = (None, "page", "odd")
WINDOWS = (0, 1, "page", "two pages and one")
ANY_NUMBER = ("page_size", "rows", "drafts")
"""Settings that a user may also give another number than those that are tried."""


def longest_row(page_size: int) -> int:
    """Tokens that a row holds, in every target."""
    return 8 * page_size + 24


class WordedSettings(Target):
    """What a target has in common with the others: how its settings are read."""

    name: str
    settings: Mapping[str, Sequence[Setting]]

    def page_size(self, settings: Mapping[str, Setting]) -> int:
        return int(self._value(settings, "page_size") or 1)

    def longest(self, settings: Mapping[str, Setting]) -> int:
        """Tokens that a row holds."""
        return longest_row(self.page_size(settings))

    def _pool_pages(self, settings: Mapping[str, Setting]) -> int:
        row_pages = -(-self.longest(settings) // self.page_size(settings))
        pages = (4 * row_pages, 2 * row_pages, row_pages + 1, row_pages // 2 + 1)
        return pages[POOLS.index(str(self._value(settings, "pool")))]

    def _chunk_tokens(self, settings: Mapping[str, Setting], *, beyond: int) -> int | None:
        """`beyond`: tokens that an odd chunk has more than its whole pages, where the server takes such a chunk."""
        page_size = self.page_size(settings)
        return (None, page_size, 3 * page_size + beyond)[CHUNKS.index(self._value(settings, "chunk"))]

    def _window_tokens(self, settings: Mapping[str, Setting]) -> int:
        page_size = self.page_size(settings)
        return (0, 1, page_size, 2 * page_size + 1)[WINDOWS.index(self._value(settings, "window"))]

    def _value(self, settings: Mapping[str, Setting], name: str) -> Setting:
        """As it is set, or the tamest. Raises UserError for a value that the target does not know."""
        value = settings.get(name, self.settings[name][0])
        if value not in self.settings[name] and not (isinstance(value, int) and name in ANY_NUMBER):
            choices = ", ".join(dict.fromkeys(map(str, self.settings[name])))
            raise UserError(f"setting {name} of {self.name}: {value!r}; choices: {choices}")
        return value
