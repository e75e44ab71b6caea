"""`kvproof record`: drive an implementation and write down what it did."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Protocol

import typer

from kvproof.conformance.adapters.scenarios import TARGETS, load, require_scenario
from kvproof.conformance.adapters.settings_arguments import parse_settings
from kvproof.conformance.adapters.sglang.launch import launch
from kvproof.conformance.adapters.workload import WorkloadRequest, read_workload
from kvproof.conformance.cli import completions
from kvproof.conformance.cli.commands.options import SilentButForErrors, fault_option
from kvproof.conformance.errors import UserError, unknown
from kvproof.conformance.report.terminal import Progress, note, say
from kvproof.spec.faults import FAULTS

# No target that is driven: a server does what its own clients ask, and what is given after `--` starts it.
SERVER = "sglang-server"


class Recording(Protocol):
    """What an adapter returns: one trace, or one of each rank."""

    @property
    def paths(self) -> tuple[Path, ...]: ...
    @property
    def events(self) -> int: ...
    @property
    def reason(self) -> str: ...


def record(
    out: Annotated[Path, typer.Option("--out", "-o", help="The trace to write: .jsonl, .jsonl.gz or .kvtrace.")],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help=f"{SERVER} only: what starts the server.")
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            help=f"What to drive: {', '.join(TARGETS)}; or {SERVER}, started by the command after --.",
            autocompletion=completions.of([*TARGETS, SERVER]),
        ),
    ] = "reference",
    scenario: Annotated[
        str | None,
        typer.Option(help="A scenario by name: see `kvproof list scenarios`.", autocompletion=completions.scenarios),
    ] = None,
    workload: Annotated[Path | None, typer.Option(help="Or a workload: Mooncake JSONL or Azure CSV.")] = None,
    fault: Annotated[
        list[str] | None,
        fault_option("Turn a known fault on (reference only, repeatable): see `kvproof list faults`."),
    ] = None,
    page_size: Annotated[int, typer.Option(help="Tokens of one page.")] = 16,
    seed: Annotated[int, typer.Option(help="Seed of everything random: same seed, same trace.")] = 0,
    scale: Annotated[int, typer.Option(help="Divide the workload's token counts, rounded up.")] = 1,
    limit: Annotated[int | None, typer.Option(help="Read only this many requests of the workload.")] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="Where the reference keeps its KV and its pages and runs its kernels: cpu, or cuda where there is one."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the target (repeatable); ranks=N gives one trace of each rank.",
        ),
    ] = None,
    quiet: SilentButForErrors = False,
) -> None:
    """Record a trace: run a scenario or a workload on an implementation and write what it did with its pages.

    Recording never judges. `kvproof replay` does. A server (sglang-server) is recorded until its command ends; the exit
    code is then the command's.

    Example: [bold]kvproof record --scenario retract --page-size 4 --fault F22862b --out out/retract.jsonl[/bold]

    Example: [bold]kvproof record --target sglang-server --out out/live.jsonl -- python -m sglang.launch_server ...[/bold]
    """
    faults = tuple(fault or ())
    if target == SERVER:
        driven = (scenario, workload, limit) != (None, None, None) or (page_size, seed, scale) != (16, 0, 1)
        _record_server(out, command or [], driven or bool(faults or settings or device), quiet)
        return
    if command:
        raise UserError(f"a command ({shlex.join(command)}) is run with --target {SERVER} only")
    _refuse_what_cannot_run(target, scenario, workload, faults, page_size, scale, limit)
    if device is not None and target != "reference":
        raise UserError(f"--device is the reference's; {target} is run on the CPU")
    placed = {} if device is None else {"device": device}
    options = {"page_size": page_size, "seed": seed, "settings": {**parse_settings(settings or []), **placed}}
    if target == "reference":
        options["faults"] = faults

    run: Callable[..., Recording]
    what: str | list[WorkloadRequest]
    if scenario is not None:
        require_scenario(target, scenario)
        run, what, named = load(target, TARGETS[target].adapter).record_scenario, scenario, f"scenario {scenario}"
    else:
        assert workload is not None  # exactly one of the two is given: _refuse_what_cannot_run
        what = read_workload(workload, scale=scale, limit=limit)
        run, named = load(target, TARGETS[target].adapter).record_workload, _describe_workload(workload, what, scale)
    with Progress(f"recording {target}", quiet=quiet) as progress:
        recording = run(what, out, **options, progress=progress)

    if not quiet:
        traces = ", ".join(map(str, recording.paths))
        say(f"recorded {traces}: {recording.events} events, page size {page_size}, {named}")
        if faults:
            say(f"  with {', '.join(faults)} turned on")
        if recording.reason != "finished":
            say(f"  the run ended early: {recording.reason}", "yellow")
        for path in recording.paths:
            _say_how_to_check(path, by_its_release=target == "sglang")


def _record_server(out: Path, command: list[str], driven: bool, quiet: bool) -> None:
    """Run the server's command to its end and exit with its code."""
    if driven:
        raise UserError(f"{SERVER} takes --out and a command only: its own clients drive a server")
    if not command:
        raise UserError(f"{SERVER} needs the command that starts the server: -- python -m sglang.launch_server ...")
    launched = launch(command, out)
    if not launched.traces:
        note(f"nothing was recorded into {out}: no scheduler came up that can be recorded; `kvproof sglang-env` checks")
    for path in launched.traces:
        if not quiet:
            say(f"recorded {path}")
            _say_how_to_check(path, by_its_release=True)
    raise typer.Exit(launched.exit_code)


def _say_how_to_check(path: Path, *, by_its_release: bool) -> None:
    """By the model's rules alone what a release does by another design would be flagged."""
    by = " --profile auto" if by_its_release else ""
    say(f"check it: kvproof replay {shlex.quote(str(path))}{by}")


def _refuse_what_cannot_run(
    target: str,
    scenario: str | None,
    workload: Path | None,
    faults: tuple[str, ...],
    page_size: int,
    scale: int,
    limit: int | None,
) -> None:
    if target not in TARGETS:
        raise unknown("target", target, [*TARGETS, SERVER])
    if (scenario is None) == (workload is None):
        raise UserError("give either --scenario NAME (see `kvproof list scenarios`) or --workload FILE")
    if page_size < 1:
        raise UserError(f"page size {page_size}: a page holds 1 token or more")
    if workload is None and (scale != 1 or limit is not None):
        raise UserError("--scale and --limit shape a workload; a scenario has its own lengths")
    if target != "reference" and workload is not None:
        raise UserError(f"--workload drives the reference only; for {target} give --scenario NAME")
    if target != "reference" and faults:
        raise UserError(f"--fault works on the reference only: the code of {target} is recorded as it is")
    if faults:
        for name in faults:
            if name not in FAULTS:
                raise unknown("fault", name, FAULTS)


def _describe_workload(path: Path, requests: list[WorkloadRequest], scale: int) -> str:
    sessions = len({request.session for request in requests} - {None})
    scaled = f", token counts divided by {scale}" if scale != 1 else ""
    return f"{len(requests)} requests in {sessions} sessions of {path.name}{scaled}"
