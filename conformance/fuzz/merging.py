"""Several jobs of one campaign as one: what was tried is added up, what is the same was found once.

The order of the jobs makes no difference, but for findings that are equally simple: then it is that of the first job.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvproof.conformance.fuzz.campaign import Campaign, Found


def merged(jobs: Sequence[Campaign], numbers: dict[str, int]) -> Campaign:
    """What all jobs did. `numbers`: that of each kind of trouble, which it keeps; new ones are added here."""
    first = jobs[0]
    total = Campaign(
        first.target, first.faults, first.pinned, first.seed, max(job.seconds for job in jobs), profile=first.profile
    )
    for job in jobs:
        total.rounds += job.rounds
        total.schedules += job.schedules
        total.refused += job.refused
        total.steps += job.steps
        total.events += job.events
        total.elapsed = max(total.elapsed, job.elapsed)
        total.coverage.add(job.coverage)
        total.seen_in.update(job.seen_in)
    found = [found for job in jobs for signature, found in job.found.items() if signature in job.known]
    for signature in dict.fromkeys(f.trouble.signature for f in sorted(found, key=lambda f: f.after_seconds)):
        numbers.setdefault(signature, len(numbers) + 1)
    for signature, number in numbers.items():
        if same := [f for f in found if f.trouble.signature == signature]:
            total.found[signature] = _merged(number, same)
    total.known = set(total.found)
    return total


def _merged(number: int, same: Sequence[Found]) -> Found:
    """The simplest of them, seen as often as all together, and as early as the first."""
    simplest = min(same, key=lambda found: found.schedule.size)
    earliest = min(same, key=lambda found: found.after_seconds)
    times = sum(found.times for found in same)
    when = earliest.after_seconds, earliest.after_schedules
    return Found(number, simplest.played, times, *when)
