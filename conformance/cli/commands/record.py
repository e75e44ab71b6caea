"""`kvproof record`: drive an implementation and record what it did."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from kvproof.conformance.adapters.scenario_run import RecordResult
from kvproof.conformance.adapters.scenarios import TARGETS, load, require_scenario
from kvproof.conformance.adapters.sglang.launch import launch
from kvproof.conformance.adapters.workload import WorkloadRequest, read_workload
from kvproof.conformance.cli import completions
from kvproof.conformance.cli.commands.options import FaultsTurnedOn, parse_settings
from kvproof.conformance.cli.progress_bar import ReplayPace
from kvproof.conformance.errors import UserError, unknown
from kvproof.conformance.report.answer import answer_with
from kvproof.conformance.report.formats.stream import given
from kvproof.conformance.report.show_replay import replay_command
from kvproof.conformance.report.terminal import Progress, note, tell
from kvproof.conformance.traces.file_names import require_ending
from kvproof.conformance.whole_file import leaving_no_empty, require_writable_file
from kvproof.spec.faults import FAULTS

# No target that is driven: a server does what its own clients ask, and what is given after `--` starts it.
SERVER = "sglang-server"


TraceFile = Annotated[Path, typer.Option("--out", "-o", help="The trace to write: .jsonl, .jsonl.gz or .kvtrace.")]
ServerCommand = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- COMMAND...]", help=f"{SERVER} only: the command that starts the server."),
]
TargetName = Annotated[
    str,
    typer.Option(
        help=f"What to drive: {', '.join(TARGETS)}; or {SERVER}, started by the command after --.",
        autocompletion=completions.of([*TARGETS, SERVER]),
    ),
]
ScenarioName = Annotated[
    str | None,
    typer.Option(help="A scenario by name: see `kvproof list scenarios`.", autocompletion=completions.scenarios),
]
Device = Annotated[
    str | None,
    typer.Option(help="Where the reference keeps its KV and its pages and runs its kernels: cpu or cuda."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A setting of the target (repeatable); ranks=N writes one trace for each rank.",
    ),
]


def record(
    context: typer.Context,
    out: TraceFile,
    command: ServerCommand = None,
    target: TargetName = "reference",
    scenario: ScenarioName = None,
    workload: Annotated[Path | None, typer.Option(help="Or a workload: Mooncake JSONL or Azure CSV.")] = None,
    fault: FaultsTurnedOn = None,
    page_size: Annotated[int, typer.Option(help="Tokens in a page.")] = 16,
    seed: Annotated[int, typer.Option(help="Random seed: the same seed gives the same trace.")] = 0,
    scale: Annotated[int, typer.Option(help="Divide the workload's token counts, rounded up.")] = 1,
    limit: Annotated[int | None, typer.Option(help="Read only this many requests of the workload.")] = None,
    device: Device = None,
    settings: Settings = None,
) -> None:
    """Record a trace: run a scenario or a workload on an implementation and write what it did with its pages.

    Recording gives no verdict; `kvproof replay` does. A server (sglang-server) is recorded until its command ends. The exit
    code is then that of the command.

    Example: [bold]kvproof record --scenario retract --page-size 4 --fault F22862b --out out/retract.jsonl[/bold]

    Example: [bold]kvproof record --target sglang-server --out out/live.jsonl -- python -m sglang.launch_server ...[/bold]
    """
    require_ending(out)
    if target == SERVER:
        _record_server(out, command or [], set(given(context)))
        return
    if command:
        raise UserError(f"a command ({shlex.join(command)}) is run with --target {SERVER} only")
    faults = tuple(fault or ())
    _refuse_what_cannot_run(target, scenario, workload, faults, page_size, scale, limit, device)
    placed = {} if device is None else {"device": device}
    options = {"page_size": page_size, "seed": seed, "settings": {**parse_settings(settings or []), **placed}}
    if target == "reference":
        options["faults"] = faults
    with Progress(f"recording {target}") as progress:
        options["progress"] = ReplayPace(progress).of_many
        if scenario is not None:
            require_scenario(target, scenario)
            named = f"scenario {scenario}"
            recording = load(target, TARGETS[target].adapter).record_scenario(scenario, out, **options)
        else:
            assert workload is not None  # exactly one of the two is given: _refuse_what_cannot_run
            requests = read_workload(workload, scale=scale, limit=limit)
            named = _describe_workload(workload, requests, scale)
            recording = load(target, TARGETS[target].adapter).record_workload(requests, out, **options)
    _tell_of(recording, faults, f"page size {page_size}, {named}", by_its_release=target == "sglang")


def _tell_of(recording: RecordResult, faults: Sequence[str], how: str, *, by_its_release: bool) -> None:
    traces = [str(path) for path in recording.paths]
    answer_with(traces=traces, events=recording.events, faults=list(faults), reason=recording.reason)
    tell(f"recorded {', '.join(map(str, recording.paths))}: {recording.events} events, {how}")
    if faults:
        tell(f"  with {', '.join(faults)} turned on")
    if recording.reason != "finished":
        tell(f"  the run ended early: {recording.reason}", "yellow")
    for path in recording.paths:
        _tell_how_to_check(path, by_its_release=by_its_release)


def _record_server(out: Path, command: list[str], options: set[str]) -> None:
    """Run the server's command to its end and exit with its code. `options`: names of those that are given."""
    if not options <= {"out", "command", "target", "json_file", "quiet", "verbose"}:
        raise UserError(f"{SERVER} takes --out and a command only: its own clients drive a server")
    if not command:
        raise UserError(f"{SERVER} needs the command that starts the server: -- python -m sglang.launch_server ...")
    require_writable_file(out)
    with leaving_no_empty(out.parent):
        launched = launch(command, out)
    answer_with(traces=[str(path) for path in launched.traces])
    if not launched.traces:
        note(f"nothing was recorded into {out}: no scheduler came up that can be recorded; `kvproof sglang-env` checks")
    for path in launched.traces:
        tell(f"recorded {path}")
        _tell_how_to_check(path, by_its_release=True)
    raise typer.Exit(launched.exit_code)


def _tell_how_to_check(path: Path, *, by_its_release: bool) -> None:
    """By the model's rules alone what a release does by another design would be flagged."""
    tell(f"check it: {replay_command(path, profile='auto' if by_its_release else None)}")


def _refuse_what_cannot_run(
    target: str,
    scenario: str | None,
    workload: Path | None,
    faults: tuple[str, ...],
    page_size: int,
    scale: int,
    limit: int | None,
    device: str | None,
) -> None:
    if target not in TARGETS:
        raise unknown("target", target, [*TARGETS, SERVER])
    if (scenario is None) == (workload is None):
        raise UserError("give either --scenario NAME (see `kvproof list scenarios`) or --workload FILE")
    if page_size < 1:
        raise UserError(f"page size {page_size}: a page holds 1 token or more")
    if workload is None and (scale != 1 or limit is not None):
        raise UserError("--scale and --limit are for a workload; a scenario has its own lengths")
    if target != "reference" and workload is not None:
        raise UserError(f"--workload is for the reference only; for {target} give --scenario NAME")
    if target != "reference" and faults:
        raise UserError(f"--fault is for the reference only: the code of {target} is recorded unmodified")
    for name in faults:
        if name not in FAULTS:
            raise unknown("fault", name, FAULTS)
    if device is not None and target != "reference":
        raise UserError(f"--device is for the reference; {target} runs on the CPU")


def _describe_workload(path: Path, requests: list[WorkloadRequest], scale: int) -> str:
    sessions = len({request.session for request in requests} - {None})
    scaled = f", token counts divided by {scale}" if scale != 1 else ""
    return f"{len(requests)} requests in {sessions} sessions of {path.name}{scaled}"
