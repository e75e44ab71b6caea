"""The gate's first step: every invariant for every action, under the rules that the change is about."""

from __future__ import annotations

from kvproof.conformance.errors import UserError
from kvproof.conformance.formats.of_proof import events_of_proof
from kvproof.conformance.gate.steps import FAILED, OPEN, PASSED, PROOF, Outcome, Plan
from kvproof.conformance.show_proof import failures
from kvproof.model.cache import Remembering
from kvproof.model.prove import Proof, prove
from kvproof.model.variant import NeverFires, Variant, prove_variant
from kvproof.spec.profiles import PROFILES


def prove_rules(plan: Plan) -> Outcome:
    """The model's own rules, those of a release, or a variant's. Raises UserError for a variant that says nothing."""
    changed = plan.variant
    if changed is None and plan.profile is not None:
        changed = Variant(plan.profile, PROFILES[plan.profile].replaced, PROFILES[plan.profile].summary)
    if changed is None:
        proof = prove(progress=plan.show, asker=plan.asker)
        plan.stream.tell(*events_of_proof(proof))
        return _outcome(proof, "the model's own rules", plan)
    try:
        proof = prove_variant(changed, plan.show, asker=plan.asker).proof
    except NeverFires as error:
        raise UserError(f"{changed.name}: {error}") from error
    plan.stream.tell(*events_of_proof(proof, changed.name, actions=changed.replaced))
    return _outcome(proof, changed.name, plan)


def _outcome(proof: Proof, of: str, plan: Plan) -> Outcome:
    proved = sum(o.verdict == "proved" for o in proof.obligations)
    detail = f"{of}: {proved} of {len(proof.obligations)} cells proved, every page size, any number of sessions"
    if isinstance(plan.asker, Remembering) and plan.asker.found:
        detail += f"; {plan.asker.found} of {plan.asker.found + plan.asker.asked} answers were kept"
    if proof.verdict == "broken":
        return Outcome(
            PROOF,
            FAILED,
            f"{of}: breaks {', '.join(proof.broken) or 'no invariant, but is vacuous'}",
            tuple(failures(proof)),
        )
    return Outcome(PROOF, PASSED if proof.verdict == "proved" else OPEN, detail, tuple(failures(proof)))
