"""The gate's first step: every invariant for every action, under the rules that the change is about."""

from __future__ import annotations

from kvproof.conformance.errors import UserError
from kvproof.conformance.gate.steps import FAILED, OPEN, PASSED, PROOF, Outcome, Plan
from kvproof.conformance.report.formats.of_proof import events_of_proof
from kvproof.conformance.report.show_proof import failures
from kvproof.model.cache import Remembering, Store
from kvproof.model.cache_folder import cache_folder
from kvproof.model.prove import Proof, prove
from kvproof.model.variant import NeverFires, Variant, prove_variant
from kvproof.spec.profiles import PROFILES


def asker_of(plan: Plan) -> Remembering:
    return Remembering(Store(plan.cache or cache_folder()))


def prove_rules(plan: Plan) -> Outcome:
    """The rules that are gated: the model's own, a release's design, or a variant. Raises UserError for one that says nothing.

    What a release is known to do wrong is not among its rules here: traces that do it are followed, and nothing would ever pass.
    """
    changed, asker = plan.variant, asker_of(plan)
    if changed is None and plan.profile in PROFILES:
        changed = Variant(plan.profile, PROFILES[plan.profile].rules, PROFILES[plan.profile].summary)
    if changed is None or not changed.replaced:
        proof = prove(progress=plan.show, asker=asker)
        plan.stream.tell(*events_of_proof(proof))
        return _outcome(proof, "the model's own rules", asker)
    try:
        proof = prove_variant(changed, plan.show, asker=asker).proof
    except NeverFires as error:
        raise UserError(f"{changed.name}: {error}") from error
    plan.stream.tell(*events_of_proof(proof, changed.name, actions=changed.replaced))
    return _outcome(proof, changed.name, asker)


def _outcome(proof: Proof, of: str, asker: Remembering) -> Outcome:
    proved = sum(o.verdict == "proved" for o in proof.obligations)
    detail = f"{of}: {proved} of {len(proof.obligations)} cells proved, every page size, any number of sessions"
    if asker.found:
        detail += f"; {asker.found} of {asker.found + asker.asked} answers were kept"
    if proof.verdict == "broken":
        return Outcome(
            PROOF,
            FAILED,
            f"{of}: breaks {', '.join(proof.broken) or 'no invariant, but is vacuous'}",
            tuple(failures(proof)),
        )
    return Outcome(PROOF, PASSED if proof.verdict == "proved" else OPEN, detail, tuple(failures(proof)))
