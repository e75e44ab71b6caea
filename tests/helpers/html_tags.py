"""The tags of a page with their attributes, as a browser would see them."""

from __future__ import annotations

from html.parser import HTMLParser

WITHOUT_END = ("meta", "line", "polyline")


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        """Those that were begun and not ended, and `/` with those that were ended and not begun."""
        self.feed(page)

    @property
    def names(self) -> list[str]:
        return [tag for tag, _ in self.seen]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        self.open += [tag] * (tag not in WITHOUT_END)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if self.open[-1:] == [tag]:
            self.open.pop()
        else:
            self.open.append(f"/{tag}")
