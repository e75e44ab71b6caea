"""The gate's last step: hostile schedules for some seconds, against the reference or the server that is gated."""

from __future__ import annotations

from kvproof.conformance.formats.of_campaign import events_of_campaign
from kvproof.conformance.fuzz.campaign_state import Plan as CampaignPlan
from kvproof.conformance.fuzz.campaign_state import State
from kvproof.conformance.fuzz.jobs import search_here
from kvproof.conformance.fuzz.leave import leave_summary, require_writable
from kvproof.conformance.fuzz.target import target_named
from kvproof.conformance.fuzz.whole import How, Whole
from kvproof.conformance.gate.steps import COULD_NOT, FAILED, FUZZ, OPEN, PASSED, Outcome, Plan
from kvproof.conformance.replay import INTERPRETED

LEAST_SECONDS = 1.0


def fuzz_target(plan: Plan) -> Outcome:
    """Raises UserError if the target cannot start."""
    seconds = min(plan.seconds, plan.seconds_left)
    if seconds < min(LEAST_SECONDS, plan.seconds):
        return Outcome(FUZZ, OPEN, "no time was left: give more --budget")
    folder = plan.folder / "fuzz"
    require_writable(folder)
    target = target_named(plan.target)
    campaign = CampaignPlan(plan.target, plan.seed, profile=plan.profile).for_target(target)
    how = How(seconds, isolates=plan.target != "reference", most=1, checker=INTERPRETED)
    whole = Whole(
        target,
        State(campaign),
        how,
        folder,
        lambda schedules, steps, _: plan.show(f"{FUZZ}: {schedules} schedules, {steps} steps"),
    )
    try:
        search_here(whole)
    finally:
        whole.end()
    leave_summary(whole, folder)
    total = whole.total
    plan.stream.tell(*events_of_campaign(total, plan.target, folder))
    detail = (
        f"{plan.target}: {total.schedules} schedules, {total.steps} steps in {total.elapsed:.0f} s, seed {plan.seed}"
    )
    if total.found:
        problems = [
            f"{f.trouble.signature}: kvproof fuzz --replay {folder / str(f.number)}" for f in total.found.values()
        ]
        return Outcome(FUZZ, FAILED, f"{detail}, {len(total.found)} found", tuple(problems))
    if not total.schedules:
        return Outcome(FUZZ, COULD_NOT, f"{plan.target}: no schedule was played")
    return Outcome(FUZZ, PASSED, f"{detail}, nothing found")
