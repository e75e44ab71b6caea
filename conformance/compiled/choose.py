"""Which checker judges a trace: the interpreted one, or the compiled one where it is installed and pays."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kvproof.conformance.errors import UserError, at
from kvproof.conformance.replay.replay import Pause, follow_interpreted
from kvproof.conformance.replay.replayer import Replayer
from kvproof.conformance.traces.json_lines import TraceReader
from kvproof.conformance.traces.open_trace import is_columnar

AUTO, COMPILED, INTERPRETED = CHECKERS = ("auto", "compiled", "interpreted")
LARGE = 2**25
"""Bytes of lines from which the compiled checker pays for its start, which is some seconds the first time."""
LARGE_IN_COLUMNS = 2**21
"""Bytes from which it pays for a trace in columns or a packed one: an event takes a sixteenth there."""


def _silent(what: str) -> None:
    pass


@dataclass(frozen=True)
class Chosen:
    """A checker by its name, for `replay(..., checker=...)`. AUTO: compiled, if that is installed and the trace is large.

    Another process may be handed one. `waits` gets what is compiled, where that is not kept from an earlier run.
    """

    name: str = AUTO
    waits: Callable[[str], None] = _silent

    def __call__(
        self,
        replayer: Replayer,
        reader: TraceReader,
        progress: Callable[[int], None],
        until: int | None,
        pause: Pause,
    ) -> bool:
        """Judge the trace. Raises UserError if the compiled checker was asked for and cannot judge it."""
        if self.name == INTERPRETED or (self.name == AUTO and not is_large(reader.path)) or not is_installed(self.name):
            return follow_interpreted(replayer, reader, progress, until, pause)
        from kvproof.conformance.compiled.build import the_judge
        from kvproof.conformance.compiled.checker import CompiledChecker

        if not can_be_compiled(replayer, self.name):
            return follow_interpreted(replayer, reader, progress, until, pause)
        checker = CompiledChecker(replayer, the_judge(replayer.oracle.actions, self.waits))
        return checker.follow_trace(reader, progress, until, pause)


def can_be_compiled(replayer: Replayer, checker: str) -> bool:
    """Whether the arrays of the compiled checker take the configuration. Raises UserError if it was asked for and they do not."""
    from kvproof.conformance.compiled.state import fits

    config = replayer.report.config
    if fits(replayer.d, config.pool_pages, config.window_pages):
        return True
    if checker == COMPILED:
        where = at(replayer.path, 1)
        raise UserError(f"{where}: the compiled checker takes no configuration this large: --checker interpreted")
    return False


def is_installed(checker: str) -> bool:
    """Whether the compiled checker can be had. Raises UserError, with what is missing, if it was asked for and cannot."""
    missing = [name for name in ("numpy", "pyarrow", "numba") if importlib.util.find_spec(name) is None]
    if missing and checker == COMPILED:
        raise UserError(f"the compiled checker needs {' and '.join(missing)}: pip install 'kvproof[scale]'")
    return not missing


def is_large(path: str | Path) -> bool:
    """Whether the interpreted checker would take longer over a trace than the compiled one needs to start."""
    packed = is_columnar(path) or Path(path).suffix == ".gz"
    return Path(path).stat().st_size >= (LARGE_IN_COLUMNS if packed else LARGE)
