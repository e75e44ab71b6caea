"""`kvproof slice`: a part of a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvproof.conformance.cli.commands.options import profile_option
from kvproof.conformance.cli.progress_bar import ReplayPace, reading_pace
from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.errors import UserError
from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.replay.rules_of_trace import require_profile
from kvproof.conformance.replay.slice_state import state_before
from kvproof.conformance.report.answer import answer_with
from kvproof.conformance.report.show_replay import replay_command
from kvproof.conformance.report.terminal import Progress, tell
from kvproof.conformance.traces.copying import replacing
from kvproof.conformance.traces.file_names import require_ending
from kvproof.conformance.traces.open_trace import read_trace, write_trace
from kvproof.conformance.traces.slices import Slice
from kvproof.conformance.traces.slicing import Cut, turns_in

InputTrace = Annotated[Path, typer.Argument(metavar="TRACE", help="The trace to cut from, in lines or in columns.")]
OutputTrace = Annotated[Path, typer.Option("--out", "-o", help="The slice to write: .jsonl, .jsonl.gz or .kvtrace.")]
First = Annotated[int, typer.Option("--from", metavar="SEQ", min=0, help="The first event.")]
Last = Annotated[int | None, typer.Option("--to", metavar="SEQ", min=0, help="The last event; without it, to the end.")]
Page = Annotated[
    int | None, typer.Option(help="Only events that moved this page, and those of its holders in that time.")
]
WithState = Annotated[
    bool,
    typer.Option(
        "--with-state", help="Check the events before the slice and add the state, so that it can be replayed."
    ),
]


def slice_(
    trace: InputTrace,
    out: OutputTrace,
    first: First = 0,
    last: Last = None,
    session: Annotated[str | None, typer.Option(help="Only events of this session and of its turns.")] = None,
    page: Page = None,
    with_state: WithState = False,
    profile: Annotated[str | None, profile_option("With --with-state: use the rules of a release.")] = None,
) -> None:
    """Cut a part out of a trace, to look at it or to share it. Events keep their seq; the header says what was cut.

    You can replay a beginning (from event 0, all events) up to the cut, and a slice with the state before it. A replay of any
    other slice exits with 3. This command also exits with 3 if the trace has no end record and ends before the slice does.

    Example: [bold]kvproof slice out/retract.jsonl --from 100 --to 200 --out out/window.jsonl[/bold]

    Example: [bold]kvproof slice out/retract.jsonl --from 100 --to 200 --with-state --out out/window.jsonl[/bold]

    Example: [bold]kvproof slice out/retract.jsonl --page 17 --out out/page17.jsonl[/bold]
    """
    require_ending(out)
    if last is not None and first > last:
        raise UserError(f"--from {first} --to {last}: the first event stands after the last")
    require_profile(profile)
    if profile is not None and not with_state:
        raise UserError("--profile is for --with-state: a slice without the state before it is cut, not judged")
    reader = read_trace(trace)
    try:
        part = Slice(first=first, last=last, session=session, page=page).within(reader.slice)
    except ValueError as error:
        raise UserError(f"{trace}: {error}") from error
    if with_state:
        part = _with_state(part, trace, profile)
    with (
        Progress(f"cutting {trace}") as progress,
        replacing(out, trace, lambda partial: write_trace(partial, part.added_to(reader.header))) as writer,
    ):
        pace, cut = reading_pace(progress, reader), Cut(reader, part)
        for event in cut:
            writer.write(event)
            pace(writer.events)
        if not writer.events:
            raise UserError(f"{trace}: no such event: nothing was written to {out}")
        if cut.whole:
            reason, dropped = cut.end
            writer.close(reason, dropped=dropped, copied=reader.end)
    answer_with(trace=str(trace), out=str(out), events=writer.events, complete=cut.whole)
    tell(f"cut {out}: {writer.events} events")
    if part.can_be_replayed:
        tell(f"check it: {replay_command(out, profile=profile)}")
    if not cut.whole:
        tell(f"  incomplete as the trace is: {reader.broken_off or 'it has no end record'}", "yellow")
        raise typer.Exit(ExitCode.INCONCLUSIVE)


def _with_state(part: Slice, trace: Path, profile: str | None) -> Slice:
    """The slice with the state before its first event."""
    if part.has_gaps:
        raise UserError("--with-state is for a window of all events: leave --session and --page out")
    if part.starts_from_nothing:
        return part
    turns = turns_in(read_trace(trace), part)
    with Progress(f"judging {trace} up to event {part.first}") as progress:
        state = state_before(
            trace, part.first, turns, ReplayPace(progress), profile, Chosen(waits=progress.show_at_once)
        )
    return part.model_copy(update={"checkpoint": state})
