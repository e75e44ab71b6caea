"""The stream of a run's events, and who listens: a file for each format that was asked for.

    with telling(context, formats) as stream:
        stream.tell(...)
        raise typer.Exit(code)

However the block ends, `ended` says it and every file is whole. Files that cannot be written are refused before the work begins.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import typer

from kvproof.conformance.errors import UserError
from kvproof.conformance.exit_codes import MEANING, ExitCode
from kvproof.conformance.report.answer import ending
from kvproof.conformance.report.formats.junit import junit
from kvproof.conformance.report.formats.run_events import CouldNot, Ended, Started, line_of
from kvproof.conformance.report.formats.sarif import sarif
from kvproof.conformance.whole_file import make_parent, require_writable_file, write_whole, writing
from kvproof.spec import SPEC_VERSION
from kvproof.spec.trace import TRACE_FORMAT


@dataclass(frozen=True)
class Formats:
    """Where the events of a run go, in which format; None: nowhere."""

    junit: Path | None = None
    sarif: Path | None = None
    ndjson: Path | None = None


class Stream:
    """Tells every listener each event."""

    def __init__(self, formats: Formats) -> None:
        self._formats = formats
        self._said: list[Any] = []
        self._lines: IO[str] | None = None

    def begin(self) -> None:
        """Raises UserError for a file that cannot be written."""
        wanted = [path for path in vars(self._formats).values() if path is not None]
        for path in wanted:
            if sum(os.path.abspath(path) == os.path.abspath(other) for other in wanted) > 1:  # noqa: PTH100
                raise UserError(f"{path} is given for two formats: name two files")
            require_writable_file(path)
        if self._formats.ndjson is not None:
            make_parent(self._formats.ndjson)
            self._lines = self._formats.ndjson.open("w", encoding="utf-8")

    def tell(self, *events: Any) -> None:
        for event in events:
            if self._formats.junit is not None or self._formats.sarif is not None:
                self._said.append(event)
            if self._lines is not None:
                with writing(self._formats.ndjson):
                    self._lines.write(line_of(event))
                    self._lines.flush()  # who follows the file sees it now

    def end(self) -> None:
        if self._lines is not None:
            with writing(self._formats.ndjson):
                self._lines.close()
        for path, fold in ((self._formats.junit, junit), (self._formats.sarif, sarif)):
            if path is not None:
                write_whole(path, [fold(self._said)])


@contextmanager
def telling(context: typer.Context, formats: Formats) -> Iterator[Stream]:
    """A command's stream from `started` to `ended`. Raises UserError at once for a file that cannot be written."""
    stream, command = Stream(formats), str(context.info_name)
    stream.begin()
    stream.tell(Started(command=command, arguments=given(context), versions=versions()))

    def end(code: int, error: str | None) -> None:
        if error is not None:
            stream.tell(CouldNot(what=command, why=error))
        stream.tell(Ended(exit_code=code, meaning=MEANING[ExitCode(code)]))
        stream.end()

    with ending(end):
        yield stream


def given(context: typer.Context) -> dict[str, Any]:
    """What stands on the command line, by the name of the option."""
    given: dict[str, Any] = {}
    for name, value in context.params.items():
        source = context.get_parameter_source(name)
        if source is not None and source.name != "DEFAULT":
            given[name] = [str(one) for one in value] if isinstance(value, list | tuple) else value
    return {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}


def versions() -> dict[str, str]:
    """Of all that a verdict rests on."""
    found = {"kvproof": version("kvproof"), "spec": SPEC_VERSION, "trace format": str(TRACE_FORMAT)}
    with suppress(PackageNotFoundError):  # only a proof needs it
        found["z3"] = version("z3-solver")
    return found
