"""A proof as the command line runs it: asked, shown, saved, and ended with its exit code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from kvproof.conformance.cli.progress_bar import StepsPace
from kvproof.conformance.cli.variant import trusted_variant
from kvproof.conformance.drive.counterexample import save_counterexample, write_witness
from kvproof.conformance.errors import UserError
from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.report import show_proof
from kvproof.conformance.report.answer import answer_with
from kvproof.conformance.report.certificate_folder import CertificateFolder
from kvproof.conformance.report.formats.itf import itf_of_run
from kvproof.conformance.report.formats.of_proof import events_of_proof
from kvproof.conformance.report.formats.stream import Stream
from kvproof.conformance.report.terminal import Progress, detail, note, say, say_lines, tell_lines
from kvproof.conformance.whole_file import write_whole
from kvproof.model import certify as certificates
from kvproof.model.cache import Remembering, Store
from kvproof.model.cache_folder import cache_folder
from kvproof.model.certify import Certifying, SolverMissing
from kvproof.model.compiled.machine_code import NEEDED, is_installed
from kvproof.model.explore import Run
from kvproof.model.prove import Interrupted, Proof, prove, prove_action, steps_of
from kvproof.model.questions import Asker
from kvproof.model.variant import NeverFires, Variant, prove_variant, steps_of_variant
from kvproof.model.witness import witness_of
from kvproof.spec.actions import Action
from kvproof.spec.faults import Fault, actions_with
from kvproof.spec.machine import LEDGER, MACHINES, Machine, machine_of
from kvproof.spec.profiles import PROFILES

WIDEST_TABLE = 120


def asker_of(
    folder: Path | None, *, no_cache: bool, certify: bool, certificate: CertificateFolder | None = None
) -> Asker:
    """Who answers: a cache and Z3, Z3 alone, or Z3 and cvc5 (which never look into the cache)."""
    if folder is not None and (no_cache or certify):
        raise UserError(f"--cache has no meaning with {'--no-cache' if no_cache else '--certify'}: leave one out")
    if certify:
        try:
            return Certifying(keep=certificate.keep if certificate else None)
        except SolverMissing as error:
            raise UserError(str(error)) from error
    if no_cache:
        return Asker()
    kept = folder or cache_folder()
    detail(f"answers of the solver are kept in {kept}")
    return Remembering(Store(kept))


class Proving:
    """One proof: `of_built_in`, `of_action`, `of_file` or `of_profile`, then `conclude`."""

    def __init__(
        self, asker: Asker, stream: Stream, out_file: Path | None, certificate: CertificateFolder | None = None
    ) -> None:
        self._asker, self._stream, self._out_file, self._certificate = asker, stream, out_file, certificate
        if not is_installed():
            missing = " and ".join(NEEDED)
            note(f"without {missing} only the smallest instances are searched, slowly: pip install 'kvproof[scale]'")
        self._of = "the model's own rules"
        self._part: str | None = None
        """The part that was asked for, in words, where it was not all."""
        self._replaced: Mapping[str, Action] = {}
        self._is_compared = False
        """Whether the rules are somebody's own, beside the built-in ones."""
        self._for_machines: dict[str, Any] = {}
        """What the JSON holds beside the proof."""
        self._proof = Proof(None)

    def of_built_in(self, fault: Fault | None) -> None:
        """The built-in rules, or one of them broken on purpose."""
        machine = fault.machine if fault else LEDGER
        self._of = fault.id if fault else self._of
        with self._progress(steps_of(fault)) as pace:
            proof = prove(fault, pace, asker=self._asker)
        self._proved(proof, actions_with(fault, machine), machine)
        if fault is None:
            _tell_tables(proof)
            _say_all(show_proof.summary(proof))
            _say_all(show_proof.failures(proof), "red")
            return
        if (path := self._out_file) is not None and (run := self._run_for(path)) is not None:
            save_counterexample(run, fault, path)
        tell_lines(show_proof.fault_lines(fault, proof))

    def of_action(self, name: str) -> None:
        """One action of the built-in rules: a part."""
        self._part = self._of = f"only {name}"
        machine = machine_of(name)
        with self._progress(1) as pace:
            proof = prove_action(name, pace, self._asker)
        self._proved(proof, machine.actions, machine)
        tell_lines([show_proof.matrix(proof, machine)], at_least=WIDEST_TABLE)
        _say_all(show_proof.summary(proof))
        _say_all(show_proof.failures(proof), "red")
        said = "no other action, no effect, no liveness and not the initial state were asked: `kvproof prove` asks all"
        say(f"{self._part}: {said}", "bold yellow")

    def of_file(self, path: Path) -> None:
        """A maintainer's own rules."""
        self._of_variant(trusted_variant(path, ". Prove only files you trust"), str(path))

    def of_profile(self, name: str) -> None:
        """A release's rules."""
        self._of_variant(Variant(name, PROFILES[name].replaced, PROFILES[name].summary), name)

    def _of_variant(self, chosen: Variant, where: str) -> None:
        """Other rules against the built-in ones. `where` they stand."""
        self._of, self._replaced, self._is_compared = where, chosen.replaced, True
        try:
            with self._progress(steps_of_variant(chosen)) as pace:
                comparison = prove_variant(chosen, pace, asker=self._asker)
        except NeverFires as error:
            raise UserError(f"{where}: {error}") from error
        proof = comparison.proof
        self._proved(proof, chosen.actions, LEDGER)
        if (path := self._out_file) is not None and (run := self._run_for(path)) is not None:
            self._save_run(run, chosen.name, path)
        self._for_machines["variant"] = {
            "file": chosen.name,
            "summary": chosen.summary,
            "replaces": list(chosen.replaced),
            "changes": [vars(change) for change in comparison.changes],
            "searched": proof.searched,
            "fails_from": [show_proof.inductive_json(state) for state in proof.states],
        }
        tell_lines(show_proof.variant_lines(comparison))

    @contextmanager
    def _progress(self, steps: int) -> Iterator[StepsPace]:
        """How far the proof is. What was found out before Ctrl-C is reported; no verdict follows from a part."""
        try:
            with Progress("proving") as progress:
                yield StepsPace(progress, steps)
        except Interrupted as stop:
            self._report_part(stop.proof)
            raise

    def _proved(self, proof: Proof, actions: Mapping[str, Action], machine: Machine) -> None:
        self._proof = proof
        if isinstance(self._asker, Certifying) and proof.counterexample is not None:
            self._asker.confirm_run(proof.counterexample, actions, machine)

    def conclude(self, itf: Path | None) -> None:
        """Say where answers came from and the verdict; save what was asked for. Raises typer.Exit unless all is proved."""
        proof = self._proof
        self._say_where_answers_are_from()
        verdict = self._with_certificate()
        self._stream.tell(*events_of_proof(proof, self._of, verdict, self._replaced))
        if itf is not None and (run := self._run_for(itf)) is not None:
            write_whole(itf, [itf_of_run(run)])
        part = "" if self._part is None else f"{self._part}: "
        answer_with(**{**show_proof.as_json(proof), **self._for_machines, "verdict": f"{part}{verdict}"})
        word, style, code = {
            "proved": ("PROVED", "bold green", ExitCode.PASS),
            "broken": ("REFUTED" if self._is_compared else "BROKEN", "bold red", ExitCode.VIOLATION),
            "unknown": ("NOT PROVED" if self._is_compared else "UNKNOWN", "bold yellow", ExitCode.INCONCLUSIVE),
            "disputed": ("DISPUTED", "bold red", ExitCode.VIOLATION),
        }[verdict]
        say(f"{part}{word}", style)
        if code != ExitCode.PASS:
            raise typer.Exit(code)

    def _run_for(self, path: Path) -> Run | None:
        """The run to save there, if one is known. The verdict does not depend on it."""
        if self._proof.counterexample is None:
            note(f"{path} is not written: no run of {self._of} is known that breaks anything")
        return self._proof.counterexample

    def _save_run(self, run: Run, variant: str, path: Path) -> None:
        try:
            write_witness(witness_of(run), path, {"variant": variant, "breaks": list(run.broken)})
        except LookupError:
            note(f"{path} is not written: the run moves pages that nobody has, and no trace can say that")

    def _say_where_answers_are_from(self) -> None:
        """Where answers came from."""
        asker = self._asker
        if not isinstance(asker, Remembering):
            return
        if asker.store.problem:
            note(asker.store.problem)
        if asker.found:
            asked = asker.found + asker.asked
            note(f"{asker.found} of {asked} answers are from {asker.store.folder} (--no-cache asks anew)")
        self._for_machines |= {"answers_from_cache": asker.found, "answers_from_solver": asker.asked}

    def _with_certificate(self) -> str:
        """The proof's verdict, which a certificate can only make worse."""
        asker, verdict = self._asker, self._proof.verdict
        if not isinstance(asker, Certifying):
            return verdict
        say_lines(show_proof.certificate_lines(asker.certificate))
        self._for_machines["certificate"] = certificates.as_json(asker.certificate)
        if (folder := self._certificate) is not None:
            manifest = folder.conclude(self._of, verdict, asker.certificate)
            say_lines(show_proof.manifest_lines(manifest, folder))
        if asker.certificate.verdict == "disagree":
            return "disputed"
        return "unknown" if asker.certificate.verdict == "unknown" and verdict == "proved" else verdict

    def _report_part(self, proof: Proof) -> None:
        self._stream.tell(*events_of_proof(proof, self._of, actions=self._replaced))
        _tell_tables(proof)
        _say_all(show_proof.failures(proof), "red")
        actions = len({o.action for o in proof.obligations})
        say(f"stopped after {actions} actions and {len(proof.lemmas)} lemmas: a part is not a proof", "bold yellow")


def _tell_tables(proof: Proof) -> None:
    # As wide as it is, also in a pipe: a table with its columns cut says nothing.
    tables = [*(show_proof.matrix(proof, machine) for machine in MACHINES), show_proof.effects_table(proof)]
    tell_lines(tables, at_least=WIDEST_TABLE)


def _say_all(lines: Iterable[str], style: str = "") -> None:
    for line in lines:
        say(line, style)
