"""The gate's step for a server's own code: its functions follow the rules, or, of a change, none begins to differ from them."""

from __future__ import annotations

from kvproof.conformance.code_proof.findings import Finding, word_of
from kvproof.conformance.code_proof.proving import Proving
from kvproof.conformance.code_proof.targets import targets_of
from kvproof.conformance.errors import UserError, at
from kvproof.conformance.gate.steps import CODE, FAILED, OPEN, PASSED, Outcome, Plan
from kvproof.conformance.report.formats.of_code_proof import events_of_code_proof
from kvproof.conformance.report.show_code_proof import newly_differs, verdict_of
from kvproof.model.cache import Store
from kvproof.model.cache_folder import cache_folder
from kvproof.model.code.claims import ABSENT, PROVED


def prove_functions(plan: Plan) -> Outcome:
    """Of `REPO@A..B`, B's functions, and what already differed at A is no failure. Raises UserError where nothing is checked."""
    assert plan.code is not None
    store = Store(plan.cache or cache_folder())
    targets = targets_of(plan.code)
    found = [
        Proving(target, target.profile(plan.profile), store, plan.deadline).all(
            lambda done, of: plan.show(f"{CODE}: {done} of {of} functions")
        )
        for target in targets
    ]
    target, findings = targets[-1], found[-1]
    plan.stream.tell(*events_of_code_proof(findings, target))
    if verdict_of(findings) == "nothing":
        raise UserError(f"{target.label}: none of the functions that kvproof knows is there")
    before = {finding.rule: finding for finding in found[0]} if len(found) > 1 else {}
    wrong = [finding for finding in findings if newly_differs(before.get(finding.rule), finding)]
    unclear = [f for f in findings if f.verdict not in (PROVED, ABSENT) and f not in wrong]
    proved = sum(finding.verdict == PROVED for finding in findings)
    detail = f"{target.label}: {proved} of {sum(f.verdict != ABSENT for f in findings)} functions proved"
    detail += "".join(
        f"; {f.function} ({f.rule}): {word_of(f)}{' as before' if f.rule in before else ''}" for f in unclear
    )
    problems = tuple(_problem(finding, target.place(finding.path or "")) for finding in wrong)
    if wrong:
        return Outcome(CODE, FAILED, f"{detail}; {len(wrong)} differ from the rules", problems)
    is_open = any(not (f.is_known_fault or _differs_as_before(f, before.get(f.rule))) for f in unclear)
    return Outcome(CODE, OPEN if is_open else PASSED, detail)


def _differs_as_before(finding: Finding, before: Finding | None) -> bool:
    return before is not None and before.verdict == finding.verdict and not finding.open


def _problem(finding: Finding, path: str) -> str:
    begin = f"{at(path, finding.line)}: {finding.function} differs from the rule {finding.rule}"
    if not finding.differences:
        return f"{begin}: {finding.verdict}"
    first = finding.differences[0]  # those that a run shows stand first
    run = f"; after {'; '.join(map(str, first.schedule))}" if first.schedule else ""
    return f"{begin}: not so: {first.sentence}{run}"
