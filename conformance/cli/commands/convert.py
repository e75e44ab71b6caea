"""`kvproof convert`: a trace in lines to one in columns, or back; or a picture of it, for other viewers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvproof.conformance.cli.progress_bar import reading_pace
from kvproof.conformance.errors import UserError, unknown
from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.report.answer import answer_with
from kvproof.conformance.report.formats.followed import Followed
from kvproof.conformance.report.formats.itf import itf_of_trace
from kvproof.conformance.report.formats.perfetto import perfetto
from kvproof.conformance.report.show_replay import replay_command
from kvproof.conformance.report.terminal import Progress, tell
from kvproof.conformance.traces.columnar import ColumnarWriter
from kvproof.conformance.traces.copying import replacing
from kvproof.conformance.traces.hashed_names import HashedNames
from kvproof.conformance.traces.json_lines import TraceReader, TraceWriter
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.conformance.whole_file import require_other_file, require_writable_file, write_whole
from kvproof.spec.trace import Event

PICTURES = {".itf.json": "itf", ".perfetto.json": "perfetto"}
"""Forms that kvproof writes and never reads."""
SUFFIXES = {".jsonl": "jsonl", ".jsonl.gz": "jsonl", ".kvtrace": "columnar", **PICTURES}
FORMS = tuple(dict.fromkeys(SUFFIXES.values()))


def convert(
    trace: Annotated[Path, typer.Argument(metavar="IN", help="The trace to read, in lines or in columns.")],
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="What to write: .jsonl, .jsonl.gz, .kvtrace, .itf.json or .perfetto.json."),
    ],
    to: Annotated[str | None, typer.Option("--to", help=f"{', '.join(FORMS)}. Default: by the name of OUT.")] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME|auto",
            help="itf, perfetto: follow the rules of a release (kvproof list profiles).",
        ),
    ] = None,
    hash_names: Annotated[
        bool,
        typer.Option(
            "--hash-names", help="For sharing: replace names of sessions and requests by salted hashes, remove extras."
        ),
    ] = False,
) -> None:
    """Convert a trace between lines (.jsonl) and columns (.kvtrace), or draw it for the viewers of ITF and Perfetto.

    Lines to columns and back gives the same bytes. This command gives no verdict. OUT appears when it is complete. Of an
    incomplete trace, it converts everything that can be read; the result is equally incomplete, and the exit code is 3.

    .itf.json has a state after each event, for viewers of TLA+ and Apalache. .perfetto.json is a time line for
    ui.perfetto.dev. Both follow the model, and end at the first event that breaks a rule (docs/reports.md).

    Example: [bold]kvproof convert out/retract.jsonl out/retract.kvtrace[/bold]

    Example: [bold]kvproof convert out/retract.jsonl out/retract.perfetto.json[/bold]
    """
    form = _form_of(to, out)
    if form in PICTURES.values():
        if hash_names:
            raise UserError(f"--hash-names is for a trace: hash that first, then convert it to {out}")
        return _draw(form, trace, out, profile)
    if profile is not None:
        raise UserError(
            f"--profile is for .itf.json and .perfetto.json; {out} is a trace, and copying it needs no rules"
        )
    return _copy(form, trace, out, hash_names)


def _draw(form: str, trace: Path, out: Path, profile: str | None) -> None:
    require_other_file(out, trace)
    followed = Followed(trace, profile)
    require_writable_file(out)
    write_whole(out, itf_of_trace(followed) if form == "itf" else perfetto(followed))
    answer_with(trace=str(trace), out=str(out), form=form, events=followed.events)
    where = {"itf": "a viewer of ITF traces", "perfetto": "https://ui.perfetto.dev"}[form]
    tell(f"drawn {out}: {followed.events} events; open it in {where}")
    if (bad := followed.bad) is not None:
        again = replay_command(trace, profile=profile)
        tell(f"  it ends at event {bad.event.seq}, which violates {bad.violates}: {again}", "yellow")
    else:
        _require_complete(followed.reader)


def _copy(form: str, trace: Path, out: Path, hash_names: bool) -> None:
    begin: type[TraceWriter] = ColumnarWriter if form == "columnar" else TraceWriter
    reader = read_trace(trace)
    names = HashedNames() if hash_names else None
    header = reader.header if names is None else names.header_of(reader)
    with (
        Progress(f"converting {trace}") as progress,
        replacing(out, trace, lambda partial: begin(partial, header)) as writer,
    ):
        pace = reading_pace(progress, reader)
        for _, record in reader:
            if isinstance(record, Event):
                writer.write(record if names is None else names.event(record))
                pace(writer.events)
        if reader.end is not None:
            reason = reader.end.reason
            reason = reason if names is None else names.reason(reason)
            writer.close(reason, dropped=reader.end.dropped, copied=reader.end)
    before, after = trace.stat().st_size, out.stat().st_size
    answer_with(trace=str(trace), out=str(out), form=form, events=writer.events)
    tell(f"converted {out}: {writer.events} events, {before} bytes to {after}")
    tell(f"check it: {replay_command(out)}")
    _require_complete(reader)


def _require_complete(reader: TraceReader) -> None:
    if reader.end is None:
        tell(f"  incomplete as the trace is: {reader.broken_off or 'it has no end record'}", "yellow")
        raise typer.Exit(ExitCode.INCONCLUSIVE)


def _form_of(to: str | None, out: Path) -> str:
    """What to write: what was asked for, or what the name of the file says."""
    if to is not None:
        if to not in FORMS:
            raise unknown("form", to, FORMS)
        return to
    for suffix, form in SUFFIXES.items():
        if out.name.endswith(suffix):
            return form
    raise UserError(f"{out}: the name ends with none of {', '.join(SUFFIXES)}: choose one of these, or give --to")
