"""What the command line writes, and where: results to stdout, everything about the run to stderr.

rich turns colours off where there is no terminal and where NO_COLOR is set.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from kvproof.conformance.printable import for_terminal

SILENT_SECONDS = 2.0
PLAIN_SECONDS = 10.0
BAR_WIDTH = 24

# A process has one terminal, and one command runs at a time.
_is_verbose = _is_quiet = False


def out(at_least: int = 0) -> Console:
    """Stdout. Made anew on each call, so that it follows a redirected stream. `at_least`: columns that a table needs."""
    console = _Harmless(highlight=False)
    return console if console.width >= at_least else _Harmless(highlight=False, width=at_least)


def err() -> Console:
    return _Harmless(stderr=True, highlight=False)


class _Harmless(Console):
    """Text is shown and never obeyed: a session, a file or an error may be named by a stranger, with escape sequences in it, or
    with a line of their own that a CI job would take for a command."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*map(harmless, objects), **options)


def harmless(shown: Any) -> Any:
    """A line of text with every character made visible; anything but text is left as it is."""
    if isinstance(shown, str):
        return for_terminal(shown)
    if isinstance(shown, Text) and (plain := for_terminal(shown.plain)) != shown.plain:
        shown = shown.copy()
        shown.plain = plain  # of the same length: styles stay where they are
    return shown


def say(text: str, style: str = "") -> None:
    """One line of a result, with an empty one before it if it begins with a line break. Neither wrapped (paths and commands are
    copied) nor read as markup."""
    if text.startswith("\n"):
        out().print()
    out().print(Text(text.removeprefix("\n"), style), soft_wrap=True)


def say_lines(lines: Iterable[Text | Table], at_least: int = 0) -> None:
    """Lines of a result with styles of their own, not wrapped either. `at_least`: as for `out`."""
    for line in lines:
        out(at_least).print(line, soft_wrap=True)


def tell(text: str, style: str = "") -> None:
    """One line that is left out with --quiet."""
    if not _is_quiet:
        say(text, style)


def tell_lines(lines: Iterable[Text | Table], at_least: int = 0) -> None:
    """Lines, or tables of so many columns, that are left out with --quiet."""
    if not _is_quiet:
        say_lines(lines, at_least)


def complain(message: str) -> None:
    """The one line that a user's mistake is answered with."""
    err().print(Text("error: ", "bold red") + Text(message, "not bold"), soft_wrap=True)


def note(message: str) -> None:
    """Something the user should know that does not stop the command."""
    err().print(Text(f"note: {message}", "dim"), soft_wrap=True)


@contextmanager
def verbosity(verbose: bool, quiet: bool) -> Iterator[None]:
    """For one command: whether `detail` is said, and what it took in the end; whether `tell` and `Progress` are not."""
    global _is_verbose, _is_quiet
    before, began = (_is_verbose, _is_quiet), time.monotonic()
    _is_verbose, _is_quiet = verbose, quiet
    try:
        yield
    finally:
        detail(f"took {time.monotonic() - began:.2f} s{_peak_memory()}")
        _is_verbose, _is_quiet = before


def detail(message: str) -> None:
    """What is said with --verbose only."""
    if _is_verbose:
        err().print(Text(message, "dim"), soft_wrap=True)


def _peak_memory() -> str:
    try:
        from resource import RUSAGE_SELF, getrusage
    except ImportError:  # Windows
        return ""
    unit = 1 if sys.platform == "darwin" else 1024
    return f", {getrusage(RUSAGE_SELF).ru_maxrss * unit / 2**20:.0f} MiB of memory at most"


def bar(share: float) -> str:
    """A share from 0 to 1 as 24 marks."""
    full = round(min(1.0, share) * BAR_WIDTH)
    return f"[{'#' * full}{'.' * (BAR_WIDTH - full)}]"


def in_time(seconds: float) -> str:
    """Minutes and seconds, as a clock shows them; hours where there are any."""
    whole = round(seconds)
    clock = f"{whole // 60 % 60:02}:{whole % 60:02}"
    return f"{whole // 3600}:{clock}" if whole >= 3600 else f"{whole // 60}:{whole % 60:02}"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table for people; tab-separated lines, without the head, for a pipe: grep and cut must find whole rows."""
    console = out()
    if not console.is_terminal:
        for row in rows:
            print("\t".join(map(for_terminal, row)))  # not by rich, which turns tabs into spaces
        return
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(Text(for_terminal(cell)) for cell in row))
    console.print(table)


class Progress:
    """Says how far a run is once it takes longer than two seconds: one live line on a terminal, else a line at times."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._console = err()
        self._began = time.monotonic()
        self._next = self._began + SILENT_SECONDS
        self._status: Status | None = None

    @property
    def seconds(self) -> float:
        """Since it began; never 0."""
        return max(time.monotonic() - self._began, 1e-6)

    def show(self, how_far: str) -> None:
        """Say in words how far the run is."""
        now = time.monotonic()
        if _is_quiet or now < self._next:
            return
        line = f"{self._what}: {how_far}"
        if not self._console.is_terminal:
            self._console.print(Text(line), soft_wrap=True)
            self._next = now + PLAIN_SECONDS
            return
        if self._status is None:
            self._status = self._console.status(Text(line))
            self._status.start()
        self._status.update(Text(line))
        self._next = now + 0.1

    def show_at_once(self, what: str) -> None:
        """Say what the run waits for, without waiting for the next time at which something is said."""
        self._next = time.monotonic()
        self.show(what)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()
