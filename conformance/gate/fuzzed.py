"""The gate's last step: hostile schedules for some seconds, against the reference or the server that is gated."""

from __future__ import annotations

from typing import Any

from kvproof.conformance.compiled.choose import INTERPRETED
from kvproof.conformance.fuzz.campaign import Found
from kvproof.conformance.fuzz.campaign_jobs import CampaignJobs, SearchOptions, leave_summary
from kvproof.conformance.fuzz.campaign_state import Plan as CampaignPlan
from kvproof.conformance.fuzz.campaign_state import State
from kvproof.conformance.fuzz.finding_folder import require_writable
from kvproof.conformance.fuzz.jobs import search_here
from kvproof.conformance.fuzz.targets import target_named, to_play_again
from kvproof.conformance.gate.steps import COULD_NOT, FAILED, FUZZ, OPEN, PASSED, Outcome, Plan
from kvproof.conformance.report.formats.of_campaign import events_of_campaign
from kvproof.conformance.whole_file import make_folder

LEAST_SECONDS = 1.0


def fuzz_target(plan: Plan) -> Outcome:
    """Raises UserError if the target cannot start."""
    seconds = min(plan.seconds, plan.seconds_left)
    if seconds < min(LEAST_SECONDS, plan.seconds):
        return Outcome(FUZZ, OPEN, "no time was left: give more --budget")
    target = target_named(plan.target)  # a mistyped one leaves no folder behind
    make_folder(plan.folder)
    folder = plan.folder / "fuzz"
    require_writable(folder)
    campaign = CampaignPlan(plan.target, plan.seed, profile=plan.profile).for_target(target)
    how = SearchOptions(seconds, isolates=plan.target != "reference", checker=INTERPRETED)

    def told(schedules: int, steps: int, _: int) -> None:
        plan.show(f"{FUZZ}: {schedules} schedules, {steps} steps")

    whole = _UntilNew(plan.accepted, target, State(campaign), how, folder, told)
    try:
        search_here(whole)
    finally:
        whole.end()
    leave_summary(whole, folder)
    return _outcome(whole, plan)


class _UntilNew(CampaignJobs):
    """Stops at the first kind of trouble that is not accepted; what is accepted fails no schedule."""

    def __init__(self, accepted: frozenset[str], *whole: Any) -> None:
        super().__init__(*whole)
        self._accepted = accepted
        for job in self.jobs:
            job.known |= accepted

    @property
    def new(self) -> list[Found]:
        return [found for signature, found in self.total.found.items() if signature not in self._accepted]

    @property
    def is_enough(self) -> bool:
        return bool(self.new)


def _outcome(whole: _UntilNew, plan: Plan) -> Outcome:
    total, new, folder = whole.total, whole.new, whole.folder
    accepted = len(total.found) - len(new)
    total.found = {found.trouble.signature: found for found in new}
    plan.stream.tell(*events_of_campaign(total, plan.target, folder))
    detail = (
        f"{plan.target}: {total.schedules} schedules, {total.steps} steps in {total.elapsed:.0f} s, seed {plan.seed}"
    )
    if new:
        problems = [f"{f.trouble.signature}: {to_play_again(plan.target, folder / str(f.number))}" for f in new]
        return Outcome(FUZZ, FAILED, f"{detail}, {len(new)} found", tuple(problems))
    if not total.schedules:
        return Outcome(FUZZ, COULD_NOT, f"{plan.target}: no schedule was played")
    known = f"nothing new, {accepted} kinds that are accepted" if accepted else "nothing found"
    return Outcome(FUZZ, PASSED, f"{detail}, {known}")
