"""Schedules by hand, for moments that chance seldom meets. Each is here because a mutant once survived for want of it."""

from __future__ import annotations

from collections.abc import Iterator

from kvproof.conformance.fuzz.reference import Reference
from kvproof.conformance.fuzz.schedule import Act, Schedule, Setting

TO_THE_END = Act(do="step", times=9)

PARTING = tuple(Act(do="send", new_tokens=26, max_new_tokens=3, shared=shared) for shared in (6, 9, 11, 15, 18))
"""Prompts of pages of 4 that go on in other words inside of a page."""


def of_the_reference(target: Reference) -> Iterator[tuple[str, Schedule]]:
    """By name."""
    for act in PARTING:
        yield f"prompts that part at {act.shared}", parting(act)
    for length in (target.config({"page_size": 4}).max_input_len + more for more in (0, 1)):
        prompt = Act(do="send", new_tokens=length, max_new_tokens=3)
        yield f"a prompt of {length} tokens", _of((prompt, TO_THE_END), page_size=4)
        yield f"an abort of a prompt of {length} tokens", _of((prompt, Act(do="abort"), TO_THE_END), page_size=4)
    yield "three requests where two may run", three_requests_of_two()
    for overlap in (False, True):
        yield f"aborts between the halves of a step, overlap {overlap}", aborts_between_halves(overlap)
        yield f"an abort between two chunks, overlap {overlap}", abort_between_chunks(overlap)
        yield f"a retract between the halves of a step, overlap {overlap}", retract_between_halves(overlap)
    for steps in (3, 4, 5):
        yield f"an abort in the queue behind a result in flight, after {steps} steps", abort_behind_late_result(steps)
    yield "a prompt that waits for the output that another one is expected to have", expected_output()
    yield "a prompt that fits with the few tokens that are left of the output", little_output_left()
    yield "a retract of a request that speculates, prepared", retract_of_a_speculating_one()
    yield "chunks in flight under a window", chunks_in_flight_under_a_window()
    for overlap, prepared in ((False, False), (False, True), (True, False)):
        yield (
            f"retracts under a window, overlap {overlap}, prepared {prepared}",
            retracts_under_a_window(overlap, prepared),
        )


def three_requests_of_two() -> Schedule:
    request = Act(do="send", new_tokens=8, max_new_tokens=3)
    return _of((request, request, request, TO_THE_END), page_size=4, max_running_requests=2)


def parting(act: Act) -> Schedule:
    """One after the other, so that each finds what the one before left in the tree; then all at once. A model runs: no event
    says which tokens a page holds, so that a match of the wrong ones is seen in the output alone."""
    later = act.model_copy(update={"shared": act.shared - 3})
    acts = (act, TO_THE_END, act, TO_THE_END, later, act, act, TO_THE_END)
    return _of(acts, page_size=4, forward="transformer")


def aborts_between_halves(overlap: bool) -> Schedule:
    """Of a request that the step carries, and of one that it does not, as others are prefilled in it."""
    first, second = (Act(do="send", new_tokens=8, max_new_tokens=count) for count in (9, 3))
    launch, of_first, of_second = Act(do="launch"), Act(do="abort", who=1), Act(do="abort", who=0)
    step = Act(do="step", times=2)
    acts = (first, step, second, launch, of_first, step, TO_THE_END, first, step, second, launch, of_second, TO_THE_END)
    return _of(acts, page_size=4, overlap=overlap)


def retract_between_halves(overlap: bool) -> Schedule:
    request = Act(do="send", new_tokens=8, max_new_tokens=9)
    acts = (request, Act(do="step", times=2), Act(do="launch"), Act(do="retract"), TO_THE_END, TO_THE_END)
    return _of(acts, page_size=4, overlap=overlap)


def abort_between_chunks(overlap: bool) -> Schedule:
    prompt = Act(do="send", new_tokens=26, max_new_tokens=3)
    acts = (prompt, Act(do="step", times=2), Act(do="launch"), Act(do="abort"), TO_THE_END)
    return _of(acts, page_size=4, chunk="page", overlap=overlap)


def abort_behind_late_result(steps: int) -> Schedule:
    """A turn ends while a step carries it; the next one is aborted in the queue, and the one behind that still has to wait."""
    turn, abort = Act(do="turn", new_tokens=8, max_new_tokens=3), Act(do="abort")
    acts = (Act(do="open"), turn, Act(do="step", times=steps), turn, abort, turn, TO_THE_END)
    return _of(acts, page_size=4, overlap=True)


def expected_output() -> Schedule:
    """Its own pages are there, and not those of the output that it and the other one are expected to have."""
    first, second = (Act(do="send", new_tokens=count, max_new_tokens=9) for count in (40, 12))
    acts = (first, Act(do="step"), second, TO_THE_END, TO_THE_END)
    return _of(acts, page_size=4, pool="tight", new_token_estimate=6)


def little_output_left() -> Schedule:
    """Fewer tokens are left to each than are expected of a request, and one more would not fit."""
    first, second = (Act(do="send", new_tokens=count, max_new_tokens=5) for count in (36, 12))
    return _of((first, Act(do="step"), second, TO_THE_END), page_size=4, pool="tight", new_token_estimate=6)


def retract_of_a_speculating_one() -> Schedule:
    """Speculation prepares no single step, also where retracts are set to find one prepared."""
    acts = (Act(do="send", new_tokens=8, max_new_tokens=9), Act(do="step", times=2), Act(do="retract"), TO_THE_END)
    return _of(acts, page_size=4, speculation=1, retract_after_prepare=True)


def chunks_in_flight_under_a_window() -> Schedule:
    """Chunks of several pages, so that one in flight still reads pages that the token behind it does not look back to."""
    turn = Act(do="turn", new_tokens=18, max_new_tokens=3)
    return _of((Act(do="open"), turn, TO_THE_END), page_size=1, window=1, chunk="odd", overlap=True)


def retracts_under_a_window(overlap: bool, prepared: bool) -> Schedule:
    """At every stage of a turn, also while its prefill is in flight, with pages of one token, so that each token counts."""
    turn, retract = Act(do="turn", new_tokens=6, max_new_tokens=9), Act(do="retract")
    once, twice = Act(do="step"), Act(do="step", times=2)
    acts = (Act(do="open"), turn, *(twice, retract, once, retract) * 6, TO_THE_END)
    return _of(acts, page_size=1, window="page", overlap=overlap, retract_after_prepare=prepared)


def _of(acts: tuple[Act, ...], **settings: Setting) -> Schedule:
    return Schedule(target=Reference.name, settings=settings, acts=acts)
