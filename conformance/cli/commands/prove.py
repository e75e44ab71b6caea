"""`kvproof prove`: every invariant for every action, what a fault breaks, or whether a changed rule is safe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kvproof.conformance.cli import completions
from kvproof.conformance.cli.commands.options import CacheFolder, JsonFile, JUnitFile, NdjsonFile, SarifFile
from kvproof.conformance.errors import UserError, unknown
from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.report.terminal import Progress, detail, err, note, out, say, write_json

WIDEST_TABLE = 120

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.text import Text

    from kvproof.model.prove import Proof
    from kvproof.model.questions import Asker
    from kvproof.model.variant import Variant
    from kvproof.spec.actions import Action
    from kvproof.spec.faults import Fault
    from kvproof.spec.machine import Machine


def prove(
    context: typer.Context,
    fault: Annotated[
        str | None,
        typer.Option(
            "--fault",
            metavar="F",
            help="Break one rule on purpose; see `kvproof list faults`.",
            autocompletion=completions.faults,
        ),
    ] = None,
    variant: Annotated[
        Path | None,
        typer.Option(
            "--variant", metavar="FILE", help="Prove or refute your own rule. The file is code and is executed."
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            help="Prove the rules of a release; see `kvproof list profiles`.",
            autocompletion=completions.profiles,
        ),
    ] = None,
    certify: Annotated[
        bool, typer.Option("--certify", help="Ask a second solver (cvc5) too, and evaluate every counterexample again.")
    ] = False,
    out_file: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Save the shortest run as a trace; needs a rule that is changed."),
    ] = None,
    json_file: JsonFile = None,
    itf: Annotated[
        Path | None,
        typer.Option("--itf", metavar="FILE", help="Save the shortest run as ITF JSON, for the viewers of TLA+."),
    ] = None,
    cache: CacheFolder = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Ask everything anew and keep nothing.")] = False,
    junit: JUnitFile = None,
    sarif: SarifFile = None,
    ndjson: NdjsonFile = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Leave out the tables.")] = False,
) -> None:
    """Prove every invariant for every action, for every page size and any number of sessions.

    With --fault: show which invariants the faulty rule breaks, and the shortest run that does. With --variant: the same for a
    rule of your own (docs/proving.md); with --profile: for a release that follows other rules. Exits with 0 if all is
    proved, 1 if something is broken or two solvers disagree, 3 if a solver gave no answer.

    Example: [bold]kvproof prove --fault F22862b[/bold]
    """
    from kvproof.conformance.report.formats.of_proof import events_of_proof
    from kvproof.conformance.report.formats.stream import Formats, telling
    from kvproof.conformance.report.formats.whole_file import require_writable_file
    from kvproof.conformance.report.show_proof import as_json
    from kvproof.model.prove import Interrupted
    from kvproof.model.variant import Variant
    from kvproof.spec.faults import FAULTS
    from kvproof.spec.profiles import PROFILES

    if fault is not None and fault not in FAULTS:
        raise unknown("fault", fault, FAULTS)
    if profile is not None and profile not in PROFILES:
        raise unknown("profile", profile, PROFILES)
    changed = [option for option in (fault, variant, profile) if option is not None]
    if len(changed) > 1:
        raise UserError("--fault, --variant and --profile each change rules: choose one")
    if out_file is not None and not changed:
        raise UserError("--out saves the shortest run of a changed rule: name it with --fault, --variant or --profile")
    if itf is not None:
        if not changed:
            raise UserError("--itf saves the shortest run of a changed rule: --fault, --variant or --profile")
        require_writable_file(itf)
    asker = _asker(cache, no_cache=no_cache, certify=certify)
    with telling(context, Formats(junit, sarif, ndjson)) as stream:
        of = "the model's own rules"
        replaced: Mapping[str, Action] = {}
        try:
            if variant is not None:
                rules = _loaded(variant)
                of, replaced = str(variant), rules.replaced
                proof, extra = _prove_variant(rules, variant, asker, out_file, quiet=quiet)
            elif profile is not None:
                rules = Variant(profile, PROFILES[profile].replaced, PROFILES[profile].summary)
                of, replaced = profile, rules.replaced
                proof, extra = _prove_variant(rules, profile, asker, out_file, quiet=quiet)
            else:
                of = fault or of
                proof, extra = _prove_built_in(FAULTS[fault] if fault else None, asker, out_file, quiet=quiet)
        except Interrupted as stop:
            stream.tell(*events_of_proof(stop.proof, of, actions=replaced))
            _show_part(stop.proof, quiet=quiet)
            raise
        verdict = _with_certificate(asker, proof, extra)
        stream.tell(*events_of_proof(proof, of, verdict, replaced))
        if itf is not None:
            _save_itf(proof, of, itf)
        if json_file is not None:
            write_json(json_file, {**as_json(proof), **extra})
        _say_verdict(verdict, is_compared=bool(variant or profile))


def _save_itf(proof: Proof, of: str, path: Path) -> None:
    from kvproof.conformance.report.formats.itf import itf_of_run
    from kvproof.conformance.report.formats.whole_file import write_whole

    if proof.counterexample is None:
        raise UserError(f"no run of {of} to save: no run of the small instances breaks anything")
    write_whole(path, [itf_of_run(proof.counterexample)])


def _say_verdict(verdict: str, *, is_compared: bool) -> None:
    """The last line, and the exit code. `is_compared`: the rules are somebody's own, beside the built-in ones."""
    word, style = {
        "proved": ("PROVED", "bold green"),
        "broken": ("REFUTED" if is_compared else "BROKEN", "bold red"),
        "unknown": ("UNKNOWN", "bold yellow"),
        "disputed": ("DISPUTED", "bold red"),
    }[verdict]
    say(word, style)
    if verdict in ("broken", "disputed"):
        raise typer.Exit(ExitCode.VIOLATION)
    if verdict == "unknown":
        raise typer.Exit(ExitCode.INCONCLUSIVE)


def _asker(folder: Path | None, *, no_cache: bool, certify: bool) -> Asker:
    """Who answers: a cache and Z3, Z3 alone, or Z3 and cvc5 (which never look into the cache)."""
    from kvproof.model.cache import Remembering, Store
    from kvproof.model.cache_folder import cache_folder
    from kvproof.model.certify import Certifying, SolverMissing
    from kvproof.model.questions import Asker

    if folder is not None and (no_cache or certify):
        raise UserError(f"--cache has no meaning with {'--no-cache' if no_cache else '--certify'}: leave one out")
    if certify:
        try:
            return Certifying()
        except SolverMissing as error:
            raise UserError(str(error)) from error
    if no_cache:
        return Asker()
    kept = folder or cache_folder()
    detail(f"answers of the solver are kept in {kept}")
    return Remembering(Store(kept))


def _prove_built_in(
    chosen: Fault | None, asker: Asker, out_file: Path | None, *, quiet: bool
) -> tuple[Proof, dict[str, Any]]:
    """The built-in rules, or one of them broken on purpose."""
    from kvproof.conformance.cli.progress_bar import StepsPace
    from kvproof.conformance.drive.counterexample import save_counterexample
    from kvproof.conformance.report.show_proof import breaks_line, failures, run_lines, summary
    from kvproof.model.prove import prove as run_proof
    from kvproof.model.prove import steps_of
    from kvproof.spec.faults import actions_with
    from kvproof.spec.machine import LEDGER

    with Progress("proving", quiet=quiet) as progress:
        proof = run_proof(chosen, StepsPace(progress, steps_of(chosen)), asker=asker)
    machine = chosen.machine if chosen else LEDGER
    _confirm(asker, proof, actions_with(chosen, machine), machine)
    if out_file is not None and chosen is not None:
        save_counterexample(proof.counterexample, chosen, out_file)
    if chosen and not quiet:
        say(f"{chosen.id} ({chosen.source}): {chosen.summary}", "bold")
        for name in chosen.deviations:
            say(f"deviates from: {name} ({machine.actions[name].summary})")
        say(breaks_line(proof))
        if proof.counterexample is None:
            say(
                "no run of the small instances shows it: perhaps it starts from a state that is never reached", "yellow"
            )
        _print(run_lines(proof.counterexample) if proof.counterexample else [])
    elif not quiet:
        _print_tables(proof)
    if not chosen:
        for line in summary(proof):
            say(line)
        for line in failures(proof):
            say(line, "red")
    return proof, _kept(asker)


def _loaded(path: Path) -> Variant:
    from kvproof.conformance.cli.variant import load_variant

    err().print(
        f"WARNING: {path} is Python code and is executed now, with all your rights. Prove only files you trust.",
        style="bold yellow",
        markup=False,
        soft_wrap=True,
    )
    return load_variant(path)


def _prove_variant(
    chosen: Variant, where: Path | str, asker: Asker, out_file: Path | None, *, quiet: bool
) -> tuple[Proof, dict[str, Any]]:
    """A maintainer's own rules, or a release's, against the built-in ones. `where` they stand."""
    from kvproof.conformance.cli.progress_bar import StepsPace
    from kvproof.conformance.drive.counterexample import write_witness
    from kvproof.conformance.report.show_variant import as_json, variant_lines
    from kvproof.model.prove import steps_of
    from kvproof.model.variant import NeverFires, prove_variant
    from kvproof.model.witness import witness_of
    from kvproof.spec.machine import LEDGER

    try:
        with Progress("proving", quiet=quiet) as progress:
            steps = steps_of() + len(chosen.replaced) + 1
            comparison = prove_variant(chosen, StepsPace(progress, steps), asker=asker)
    except NeverFires as error:
        raise UserError(f"{where}: {error}") from error
    proof = comparison.proof
    _confirm(asker, proof, chosen.actions, LEDGER)
    if out_file is not None:
        if proof.counterexample is None:
            raise UserError(f"no trace of {where} to save: no run of the small instances breaks anything")
        extra = {"variant": chosen.name, "breaks": list(proof.counterexample.broken)}
        write_witness(witness_of(proof.counterexample), out_file, extra)
    _print(variant_lines(comparison) if not quiet else [])
    return proof, {**as_json(comparison), **_kept(asker)}


def _confirm(asker: Asker, proof: Proof, actions: Any, machine: Machine) -> None:
    from kvproof.model.certify import Certifying

    if isinstance(asker, Certifying) and proof.counterexample is not None:
        asker.confirm_run(proof.counterexample, actions, machine)


def _with_certificate(asker: Asker, proof: Proof, extra: dict[str, Any]) -> str:
    """The proof's verdict, which a certificate can only make worse."""
    from kvproof.conformance.report.show_certificate import certificate_lines
    from kvproof.model.certify import Certifying, as_json

    if not isinstance(asker, Certifying):
        return proof.verdict
    _print(certificate_lines(asker.certificate))
    extra["certificate"] = as_json(asker.certificate)
    if asker.certificate.verdict == "disagree":
        return "disputed"
    return "unknown" if asker.certificate.verdict == "unknown" and proof.verdict == "proved" else proof.verdict


def _kept(asker: Asker) -> dict[str, Any]:
    """Where answers came from, said to people and returned for machines."""
    from kvproof.model.cache import Remembering

    if not isinstance(asker, Remembering):
        return {}
    if asker.store.problem:
        note(asker.store.problem)
    if asker.found:
        note(
            f"{asker.found} of {asker.found + asker.asked} answers are from {asker.store.folder} (--no-cache asks anew)"
        )
    return {"answers_from_cache": asker.found, "answers_from_solver": asker.asked}


def _show_part(proof: Proof, *, quiet: bool) -> None:
    """What was found out before Ctrl-C. No verdict follows from a part."""
    from kvproof.conformance.report.show_proof import failures

    if not quiet:
        _print_tables(proof)
    for line in failures(proof):
        say(line, "red")
    actions = len({o.action for o in proof.obligations})
    say(f"stopped after {actions} actions and {len(proof.lemmas)} lemmas: a part is not a proof", "bold yellow")


def _print_tables(proof: Proof) -> None:
    from kvproof.conformance.report.show_proof import effects_table, matrix
    from kvproof.spec.machine import MACHINES

    # As wide as it is, also in a pipe: a table with its columns cut says nothing.
    console = out(at_least=WIDEST_TABLE)
    for table in (*(matrix(proof, machine) for machine in MACHINES), effects_table(proof)):
        console.print(table, soft_wrap=True)


def _print(lines: Any) -> None:
    console = out()
    line: Text
    for line in lines:
        console.print(line, soft_wrap=True)
