"""`kvproof prove`: every invariant for every action, what a fault breaks, or whether a changed rule is safe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvproof.conformance.cli import completions
from kvproof.conformance.cli.commands.options import CacheFolder, Code, JUnitFile, NdjsonFile, SarifFile
from kvproof.conformance.errors import UserError, unknown
from kvproof.conformance.gate.changed import require_actions
from kvproof.conformance.replay.rules_of_trace import OF_THE_TRACE
from kvproof.conformance.report.formats.stream import Formats, telling
from kvproof.conformance.traces.file_names import require_ending
from kvproof.conformance.whole_file import require_parent, require_writable_file
from kvproof.spec.faults import FAULTS
from kvproof.spec.profiles import PROFILES

BrokenRule = Annotated[
    str | None,
    typer.Option(
        "--fault",
        metavar="F",
        help="Break one rule on purpose; see `kvproof list faults`.",
        autocompletion=completions.faults,
    ),
]
VariantFile = Annotated[
    Path | None,
    typer.Option("--variant", metavar="FILE", help="Prove or refute your own rule. The file is code and is executed."),
]
ProfileName = Annotated[
    str | None,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="Prove the rules of a release; see `kvproof list profiles`. With --code, `auto` takes those of its version.",
        autocompletion=completions.profiles,
    ),
]
ActionName = Annotated[
    str | None,
    typer.Option(
        "--action",
        metavar="NAME",
        help="Prove only this action, which is no proof of the rules; see `kvproof list actions`.",
        autocompletion=completions.actions,
    ),
]
Certify = Annotated[
    bool, typer.Option("--certify", help="Ask a second solver (cvc5) too, and evaluate every counterexample again.")
]
CertificateDir = Annotated[
    Path | None,
    typer.Option(
        "--certificate",
        metavar="DIR",
        help="With --certify: save each question, both answers and cvc5's proofs, for others to check.",
    ),
]
TraceFile = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Save the shortest run of a changed rule as a trace."),
]
ItfFile = Annotated[
    Path | None,
    typer.Option("--itf", metavar="FILE", help="Save the shortest run as ITF JSON, for viewers of TLA+."),
]
HtmlFile = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help="With --code: write the report as one HTML page that needs no network."
    ),
]
SchedulesFolder = Annotated[
    Path | None,
    typer.Option(
        "--schedules", metavar="DIR", help="With --code: save each difference as schedules for kvproof fuzz --replay."
    ),
]


def prove(
    context: typer.Context,
    fault: BrokenRule = None,
    variant: VariantFile = None,
    profile: ProfileName = None,
    action: ActionName = None,
    code: Code = None,
    html: HtmlFile = None,
    schedules: SchedulesFolder = None,
    certify: Certify = False,
    certificate: CertificateDir = None,
    out_file: TraceFile = None,
    itf: ItfFile = None,
    cache: CacheFolder = None,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", help="Ask every question again, and keep no answers.")
    ] = False,
    junit: JUnitFile = None,
    sarif: SarifFile = None,
    ndjson: NdjsonFile = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Leave out the tables.")] = False,
) -> None:
    """Prove every invariant for every action, for every page size and any number of sessions.

    --fault shows which invariants a faulty rule breaks, and the shortest run that shows it. --variant does the same for a rule
    of your own (docs/proving.md), --profile for the rules of a release. --code proves that SGLang's own functions follow the
    rules, on every path; the code is read and not executed. Exits with 0 if everything is proved, 1 if something is broken or
    two solvers disagree, 3 if a changed rule is neither proved nor refuted, a solver gave no answer or code is not understood.

    Example: [bold]kvproof prove --fault F22862b[/bold]
    """
    from kvproof.conformance.cli.proving import Proving, asker_of  # needs z3, which takes longer to load than all help
    from kvproof.conformance.report.certificate_folder import CertificateFolder

    if fault is not None and fault not in FAULTS:
        raise unknown("fault", fault, FAULTS)
    if action is not None:
        require_actions([action])
    is_of_code = code is not None and profile == OF_THE_TRACE
    if profile is not None and profile not in PROFILES and not is_of_code:
        raise unknown("profile", profile, PROFILES)
    if cache is not None:
        require_parent(cache)
    if code is not None:
        _require_only_code(context, cache, no_cache=no_cache)
        from kvproof.conformance.cli.proving_code import Saved, prove_code  # needs z3

        saved = Saved(html, schedules)
        with telling(context, Formats(junit, sarif, ndjson)) as stream:
            prove_code(code, profile, cache, no_cache=no_cache, stream=stream, saved=saved)
        return
    if html is not None or schedules is not None:
        raise UserError("--html and --schedules are for --code: name the code, or leave them out")
    if action is not None and (fault or variant or profile):
        raise UserError("--action is for the built-in rules: leave out --fault, --variant and --profile")
    changed = [option for option in (fault, variant, profile) if option is not None]
    if len(changed) > 1:
        raise UserError("--fault, --variant and --profile each change rules: choose one")
    if out_file is not None:
        if not changed:
            raise UserError(
                "--out saves the shortest run of a changed rule: name it with --fault, --variant or --profile"
            )
        require_ending(out_file)
        require_writable_file(out_file)
    if itf is not None:
        if not changed:
            raise UserError("--itf saves the shortest run of a changed rule: --fault, --variant or --profile")
        require_writable_file(itf)
    if certificate is not None and not certify:
        raise UserError("--certificate saves what two solvers say: give --certify as well")
    folder = CertificateFolder(certificate) if certificate is not None else None
    asker = asker_of(cache, no_cache=no_cache, certify=certify, certificate=folder)
    with telling(context, Formats(junit, sarif, ndjson)) as stream:
        proving = Proving(asker, stream, out_file, folder)
        if variant is not None:
            proving.of_file(variant)
        elif profile is not None:
            proving.of_profile(profile)
        elif action is not None:
            proving.of_action(action)
        else:
            proving.of_built_in(FAULTS[fault] if fault is not None else None)
        proving.conclude(itf)


def _require_only_code(context: typer.Context, cache: Path | None, *, no_cache: bool) -> None:
    others = {"out_file": "out"} | {
        name: name for name in ("fault", "variant", "action", "certify", "certificate", "itf")
    }
    if given := [f"--{option}" for name, option in others.items() if context.params.get(name)]:
        raise UserError(f"--code proves functions, not rules: leave out {', '.join(given)}")
    if cache is not None and no_cache:
        raise UserError("--cache has no meaning with --no-cache: leave one out")
