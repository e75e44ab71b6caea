"""A case put to kvproof's own command line, and what came of it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from kvproof.conformance.cli import cli
from kvproof.conformance.cli.variant import load_variant
from kvproof.conformance.errors import UserError
from kvproof.conformance.exit_codes import ExitCode
from kvproof.model.cache import Remembering, Store
from kvproof.model.prove import induction_step
from referee.cases import Case, Edit, Variant
from referee.traces import EDITS
from referee.traces.bases import Bases
from referee.variant_files import text_of
from referee.variants import VARIANTS

CASES: dict[str, Case] = {**VARIANTS, **EDITS}

PROVED, REFUTED, NOT_PROVED, REFUSED = "proved", "refuted", "not proved", "refused"
UNKNOWN, NO_ANSWER = "unknown", "no answer"
CONFORMS, VIOLATES, INCOMPLETE = "conforms", "violates", "incomplete"
PASSES = (PROVED, CONFORMS)
OF_PROVE: dict[int, str] = {
    ExitCode.PASS: PROVED,
    ExitCode.VIOLATION: REFUTED,
    ExitCode.COULD_NOT_RUN: REFUSED,
    ExitCode.INCONCLUSIVE: NOT_PROVED,
}
OF_REPLAY: dict[int, str] = {
    ExitCode.PASS: CONFORMS,
    ExitCode.VIOLATION: VIOLATES,
    ExitCode.COULD_NOT_RUN: REFUSED,
    ExitCode.INCONCLUSIVE: INCOMPLETE,
}
PYTHON_MISTAKE = re.compile(r"\b\w+Error\b: ")
"""In a refusal: the case itself does not run, so that nothing was found."""
MOST_SAID = 160


@dataclass(frozen=True)
class Verdict:
    """What kvproof said of a case, and by what: invariants, sentences, or the message of a refusal."""

    verdict: str
    by: str = ""

    def is_right(self, case: Case) -> bool:
        """A harmful case is found, a harmless one passes. No answer, and a case that does not run, are neither."""
        if not case.harmful:
            return self.verdict in PASSES
        if self.verdict == REFUSED:
            return PYTHON_MISTAKE.search(self.by) is None
        return self.verdict in (REFUTED, NOT_PROVED, VIOLATES, INCOMPLETE)


@dataclass(frozen=True)
class Judge:
    """Judges cases. `folder`: where files are written; `cache`: of the solver's answers; `bases`: the right traces."""

    folder: Path
    cache: Path
    bases: Bases

    def verdict(self, case: Case) -> Verdict:
        return self._of_variant(case) if isinstance(case, Variant) else self._of_edit(case)

    def text(self, case: Case) -> str:
        """What is put to kvproof: the variant file, or the altered trace."""
        if isinstance(case, Variant):
            return text_of(case)
        assert isinstance(case, Edit)
        return self.bases.edited(case)

    def _of_variant(self, variant: Variant) -> Verdict:
        """Refuted by the induction, which is quick; else the command line says what it is, which asks for more."""
        path = self.folder / f"{variant.name}.py"
        path.write_text(self.text(variant), encoding="utf-8")
        if broken := self._refuted_by_induction(path):
            return Verdict(REFUTED, ", ".join(broken))
        said = self.folder / f"{variant.name}.json"
        code, message = _kvproof("prove", "--quiet", "--variant", path, "--json", said, "--cache", self.cache)
        verdict = OF_PROVE.get(code, UNKNOWN)
        if verdict in (REFUTED, NOT_PROVED):
            proof = json.loads(said.read_text(encoding="utf-8"))
            lost = [lemma["lemma"] for lemma in proof["effects"] if lemma["verdict"] != "proved"]
            return Verdict(verdict, _shortened("; ".join([*proof["broken"], *proof["vacuous"], *lost])))
        return Verdict(verdict, "" if verdict == PROVED else message)

    def _refuted_by_induction(self, path: Path) -> list[str]:
        """The invariants that a rule of the file does not keep; none if the rule never fires, or is refused."""
        asker = Remembering(Store(self.cache))
        try:
            rules = load_variant(path).replaced.values()
            contradictions: list[str] = []
            found = [cell for rule in rules for cell in induction_step(rule, contradictions, asker)]
        except UserError:
            return []
        broken = {cell.invariant: None for cell in found if cell.verdict == "broken"}
        return [] if contradictions else list(broken)

    def _of_edit(self, case: Case) -> Verdict:
        assert isinstance(case, Edit)
        path, said = self.folder / f"{case.name}.jsonl", self.folder / f"{case.name}.json"
        path.write_text(self.text(case), encoding="utf-8")
        options = ["--profile", profile] if (profile := self.bases.profile(case.base)) else []
        code, message = _kvproof("replay", path, "--quiet", "--json", said, *options)
        verdict = OF_REPLAY.get(code, UNKNOWN)
        if verdict in (CONFORMS, REFUSED, UNKNOWN):
            return Verdict(verdict, "" if verdict == CONFORMS else message)
        (report,) = json.loads(said.read_text(encoding="utf-8"))["traces"]
        if verdict == INCOMPLETE:
            return Verdict(verdict, _shortened(report["why"]))
        return Verdict(verdict, _first_finding(report["findings"][0]))


def _first_finding(finding: dict[str, Any]) -> str:
    """Where and by what: event, action, invariants or the values that differ."""
    by = [*finding["invariants"]] or [d["name"] for d in finding["differences"]] or [finding["rule"]]
    return _shortened(f"event {finding['seq']}, {finding['action']}: {', '.join(by)}")


def _kvproof(*arguments: object) -> tuple[int, str]:
    """Exit code and last line of standard error of `kvproof ARGUMENTS`, run in this process."""
    done = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
    return done.exit_code, _shortened(lines[-1].strip() if lines else "")


def _shortened(text: str) -> str:
    """Without the folders of files, and on one short line."""
    plain = re.sub(r"\S*/(?=\w+\.(?:py|jsonl))", "", " ".join(text.split()))
    return plain if len(plain) <= MOST_SAID else f"{plain[: MOST_SAID - 1]}…"
