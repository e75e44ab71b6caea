"""`kvproof convert`: a trace in lines to one in columns, or back."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UserError, unknown
from ..exit_codes import ExitCode
from ..terminal import Progress, say

if TYPE_CHECKING:
    from ..trace_io import TraceWriter

FORMS = ("jsonl", "columnar")


def convert(
    trace: Annotated[Path, typer.Argument(metavar="IN", help="The trace to read, in lines or in columns.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The trace to write: .jsonl, .jsonl.gz or .kvtrace.")],
    to: Annotated[
        str | None, typer.Option("--to", help=f"{' or '.join(FORMS)}; without it the name of OUT decides.")
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Convert a trace between lines (.jsonl) and columns (.kvtrace). Nothing is lost: there and back are the same bytes.

    Converting never judges. OUT appears when it is whole. Of an incomplete trace all that can be read is converted, the
    result is as incomplete, and the exit code is 3.

    Example: [bold]kvproof convert out/retract.jsonl out/retract.kvtrace[/bold]
    """
    from kvproof.spec.trace import Event

    from ..copying import replacing
    from ..pace import ReadingPace
    from ..trace_io import read_trace

    begin = _writer_of(to, out)
    reader = read_trace(trace)
    with (
        Progress(f"converting {trace}", quiet=quiet) as progress,
        replacing(out, trace, lambda partial: begin(partial, reader.header)) as writer,
    ):
        pace = ReadingPace(progress, reader)
        for _, record in reader:
            if isinstance(record, Event):
                writer.write(record)
                pace(writer.events)
        if reader.end is not None:
            writer.close(reader.end.reason, dropped=reader.end.dropped)
    if not quiet:
        before, after = trace.stat().st_size, out.stat().st_size
        say(f"converted {out}: {writer.events} events, {before} bytes to {after}")
        say(f"check it: kvproof replay {shlex.quote(str(out))}")
    if reader.end is None:
        if not quiet:
            say(f"  incomplete as the trace is: {reader.broken_off or 'it has no end record'}", "yellow")
        raise typer.Exit(ExitCode.INCONCLUSIVE)


def _writer_of(to: str | None, out: Path) -> type[TraceWriter]:
    """The class that writes the wanted form."""
    from ..columnar import ColumnarWriter
    from ..trace_io import COLUMNAR_SUFFIX, TraceWriter

    if to is None:
        if out.suffix != COLUMNAR_SUFFIX and not out.name.endswith((".jsonl", ".jsonl.gz")):
            raise UserError(f"{out}: write to .kvtrace, .jsonl or .jsonl.gz, or say --to {' or --to '.join(FORMS)}")
        to = "columnar" if out.suffix == COLUMNAR_SUFFIX else "jsonl"
    if to not in FORMS:
        raise unknown("form", to, FORMS)
    return ColumnarWriter if to == "columnar" else TraceWriter
