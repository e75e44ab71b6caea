"""`kvproof gate`: what a pull request must pass, in one command."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from kvproof.conformance.cli import completions
from kvproof.conformance.cli.commands.options import (
    CacheFolder,
    Code,
    FuzzTarget,
    JUnitFile,
    NdjsonFile,
    SarifFile,
    profile_option,
)
from kvproof.conformance.errors import UserError, unknown
from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.gate.changed import changed_since, require_actions
from kvproof.conformance.gate.golden_traces import judge_golden
from kvproof.conformance.gate.needs import accepted_in, require_fuzzer, require_solver
from kvproof.conformance.gate.steps import (
    CODE,
    FUZZ,
    GOLDEN,
    KILLS,
    PROOF,
    STEPS,
    Outcome,
    Plan,
    StepFunction,
    exit_code,
    run_step,
)
from kvproof.conformance.gate.summary import HEADS, markdown
from kvproof.conformance.replay.rules_of_trace import require_profile
from kvproof.conformance.report.answer import answer_with
from kvproof.conformance.report.formats.stream import Formats, telling, versions
from kvproof.conformance.report.terminal import Progress, note, say, say_lines, tell
from kvproof.conformance.whole_file import require_parent, require_writable_file, write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvproof.model.variant import Variant

OF_GITHUB = "GITHUB_STEP_SUMMARY"
"""Where a job of GitHub Actions keeps the page that it shows."""


VariantFile = Annotated[
    Path | None,
    typer.Option("--variant", metavar="FILE", help="Check your own rule. The file is code: needs --trust-variants."),
]
TrustVariants = Annotated[
    bool,
    typer.Option(
        "--trust-variants",
        help="Execute the file of --variant, with all your rights. Not for an untrusted pull request.",
    ),
]
Profile = Annotated[
    str | None,
    profile_option("Use the rules of a release; auto: for traces and fuzzing, those that the trace or target names."),
]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="GITREF", help="Kill matrix only of actions whose rules changed since then."),
]
ActionNames = Annotated[
    list[str] | None,
    typer.Option(
        "--action",
        metavar="NAME",
        help="Kill matrix only of this action (repeatable).",
        autocompletion=completions.actions,
    ),
]
GoldenFolders = Annotated[
    list[Path] | None,
    typer.Option(
        "--golden", metavar="DIR", help="A folder of golden traces (repeatable), instead of the shipped ones."
    ),
]
AcceptedFile = Annotated[
    Path | None,
    typer.Option(
        "--accepted", metavar="FILE", help="Signatures of known, unfixed bugs that fuzzing may find, one a line."
    ),
]
SkippedSteps = Annotated[
    list[str] | None,
    typer.Option("--skip", metavar="STEP", help="Skip a step (repeatable): proof, kills, golden, fuzz."),
]
Budget = Annotated[
    float,
    typer.Option("--budget", min=1, metavar="S", help="Time limit in seconds; an unfinished step has no verdict."),
]
MarkdownFile = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE", help=f"Write the table; also written to ${OF_GITHUB}.")
]
FindingsFolder = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for findings of the fuzzer.")]


def gate(
    context: typer.Context,
    variant: VariantFile = None,
    trust: TrustVariants = False,
    code: Code = None,
    profile: Profile = None,
    since: Since = None,
    action: ActionNames = None,
    golden: GoldenFolders = None,
    target: FuzzTarget = "reference",
    seconds: Annotated[float, typer.Option("--fuzz-seconds", min=0.1, help="How long to fuzz.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the fuzzer: the same seed tries the same schedules.")] = 0,
    accepted: AcceptedFile = None,
    skip: SkippedSteps = None,
    budget: Budget = 110,
    markdown_file: MarkdownFile = None,
    folder: FindingsFolder = Path("out/gate"),
    cache: CacheFolder = None,
    junit: JUnitFile = None,
    sarif: SarifFile = None,
    ndjson: NdjsonFile = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="One line for each step.")] = False,
) -> None:
    """Check what a pull request must pass: the proof, known faults still found, golden traces, and a short fuzz.

    Exits with 0 if every step passed, 1 if something failed, 2 if something could not run or nothing was checked,
    3 if something has no verdict. Takes under two minutes on two cores (docs/gate.md).

    Example: [bold]kvproof gate --since origin/main[/bold]

    Example: [bold]kvproof gate --variant my_fix.py --trust-variants --markdown gate.md[/bold]

    Example: [bold]kvproof gate --target sglang --profile sglang-0.5.23 --golden traces/[/bold]
    """
    deadline = time.monotonic() + budget
    skipped = _skipped(skip or [])
    _require_arguments(profile, variant, trust, golden or [])
    known = accepted_in(accepted) if accepted is not None else frozenset()
    if cache is not None:
        require_parent(cache)
    if markdown_file is not None:
        require_writable_file(markdown_file)
    with telling(context, Formats(junit, sarif, ndjson)) as stream, Progress("gate") as progress:
        rules = _loaded(variant) if variant is not None else None
        plan = Plan(
            stream=stream,
            deadline=deadline,
            cache=cache,
            variant=rules,
            code=code,
            profile=profile,
            actions=_about(rules, since, action),
            golden=tuple(golden or ()),
            target=target,
            seconds=seconds,
            seed=seed,
            accepted=known,
            folder=folder,
            show=progress.show,
        )
        raise typer.Exit(_conclude(_run(plan, skipped), markdown_file))


def _conclude(outcomes: Sequence[Outcome], markdown_file: Path | None) -> ExitCode:
    """Write the table and say the verdict. Raises UserError where nothing was checked."""
    code = exit_code(outcomes)
    page = markdown(outcomes, code, versions(), shlex.join(["kvproof", *sys.argv[1:]]))
    if markdown_file is not None:
        write_whole(markdown_file, [page])
    _add_to_github(page)
    answer_with(verdict=HEADS[code], steps=[vars(outcome) for outcome in outcomes])
    if all(outcome.verdict == "not asked for" for outcome in outcomes):
        raise UserError("every step was skipped or has nothing to check: nothing was checked")
    spent = sum(outcome.seconds for outcome in outcomes)
    say(f"GATE {HEADS[code].upper()} ({spent:.0f} s)", "bold green" if code == ExitCode.PASS else "bold red")
    return code


def _skipped(names: Sequence[str]) -> set[str]:
    by_word = {"kills": STEPS[1], "golden": STEPS[2], **{step: step for step in STEPS}}
    for name in names:
        if name not in by_word:
            raise unknown("step", name, ("proof", "kills", "golden", "fuzz"))
    return {by_word[name] for name in names}


def _require_arguments(profile: str | None, variant: Path | None, trust: bool, golden: Sequence[Path]) -> None:
    """What is misspelt, or not allowed, is said before the first step."""
    require_profile(profile)
    if profile is not None and variant is not None:
        raise UserError("--variant and --profile each change rules: choose one")
    for place in golden:
        if not place.is_dir():
            raise UserError(f"{place}: --golden names a folder of traces, which does not exist")
    if variant is not None and not trust:
        raise UserError(
            f"{variant} is Python code, and --variant executes it with all your rights. If you trust its author, "
            "add --trust-variants; never do so for an untrusted pull request"
        )


def _loaded(path: Path) -> Variant:
    require_solver()
    from kvproof.conformance.cli.variant import trusted_variant

    return trusted_variant(path, ", because of --trust-variants")


def _about(rules: Variant | None, since: str | None, actions: list[str] | None) -> tuple[str, ...] | None:
    """The actions that the change is about, from all that says so; None where nothing does."""
    if rules is None and since is None and actions is None:
        return None
    named = [*require_actions(actions or ()), *(changed_since(since) if since is not None else ())]
    return tuple(dict.fromkeys([*named, *(rules.replaced if rules is not None else ())]))


def _run(plan: Plan, skipped: set[str]) -> list[Outcome]:
    """The outcomes in the order of `STEPS`; what takes longest runs last."""
    asked: dict[str, StepFunction] = {CODE: _prove_functions} if plan.code is not None else {}
    steps: dict[str, StepFunction] = {PROOF: _prove, **asked, GOLDEN: judge_golden, FUZZ: _fuzz, KILLS: _kill}
    done = {}
    for name, step in steps.items():
        done[name] = run_step(name, None if name in skipped else step, plan)
        _show_step(done[name])
    return [done[name] for name in (*STEPS, *asked)]


def _prove_functions(plan: Plan) -> Outcome:
    require_solver()
    from kvproof.conformance.gate.code import prove_functions

    return prove_functions(plan)


def _prove(plan: Plan) -> Outcome:
    require_solver()
    from kvproof.conformance.gate.proof import prove_rules

    return prove_rules(plan)


def _kill(plan: Plan) -> Outcome:
    require_solver()
    from kvproof.conformance.gate.kills import kill_faults

    return kill_faults(plan)


def _fuzz(plan: Plan) -> Outcome:
    require_fuzzer()
    from kvproof.conformance.gate.fuzzed import fuzz_target

    return fuzz_target(plan)


STYLES = {"passed": "green", "failed": "bold red", "not asked for": "dim"}


def _show_step(outcome: Outcome) -> None:
    line = Text(f"{outcome.verdict:<14}", STYLES.get(outcome.verdict, "bold yellow"))
    say_lines([line + Text(f" {outcome.name}: {outcome.detail} ({outcome.seconds:.1f} s)", "not bold")])
    for problem in outcome.problems:
        tell(f"    {problem}", "red")


def _add_to_github(page: str) -> None:
    """A page that cannot be shown changes no verdict."""
    place = os.environ.get(OF_GITHUB)
    if not place:
        return
    try:
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(page + "\n")
    except OSError as error:
        note(f"${OF_GITHUB}: cannot write {place}: {error.strerror or error}")
