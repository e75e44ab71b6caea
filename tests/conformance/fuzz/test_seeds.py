"""Schedules from the prover: what the shortest run of a fault's model is to users brings the implementation to the same fault.

What the shortest run to a corner of the model is to them brings it into that corner.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
from corner_runs import corner_runs
from fuzzing.campaigns import faults_of_the_reference
from seed_search import searched

from kvproof.conformance.fuzz.loads import loads_of
from kvproof.conformance.fuzz.play import play
from kvproof.conformance.fuzz.reference import Reference
from kvproof.conformance.fuzz.schedule import Schedule
from kvproof.conformance.fuzz.seeds import seeds
from kvproof.conformance.replay.replayer import Replayer, Unwritten
from kvproof.model.expectations import CONFIGURED, Expectation
from kvproof.model.explore import counterexample

# The search has to find these itself: they take a wait, a full pool or a tree with a branch, which no user's act brings about.
NOT_BY_A_SEED = {"F22753", "F994a", "F994b", "F994d"}
# The implementation inserts only the prompt of a turn that continues, which has a page of its own soon after.
NOT_MET_BY_A_SEED = {"a slot whose every page is shared with the tree"}
CORNERS = {e.name: e for some in CONFIGURED.values() for e in some if e.reachable}


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference()


def test_no_seed_finds_anything_where_nothing_is_wrong(reference: Reference) -> None:
    assert [played.trouble for seed in seeds() if (played := play(seed, reference)).trouble] == []


@pytest.mark.parametrize("fault", faults_of_the_reference())
def test_a_seed_shows_the_fault(reference: Reference, fault: str) -> None:
    played = (play(seed.model_copy(update={"faults": (fault,)}), reference) for seed in seeds())
    is_named = any(p.trouble is not None and fault in p.trouble.faults for p in played)
    assert is_named == (fault not in NOT_BY_A_SEED)


@pytest.fixture(scope="module")
def loads() -> dict[str, list[Schedule]]:
    """Of each corner."""
    return {name: list(loads_of(run)) for name, run in corner_runs().items()}


@pytest.mark.slow
@pytest.mark.parametrize("corner", CORNERS)
def test_a_seed_leads_into_the_corner(reference: Reference, loads: dict[str, list[Schedule]], corner: str) -> None:
    assert {load.as_json() for load in loads[corner]} <= {seed.as_json() for seed in seeds()}
    is_met = any(_meets(CORNERS[corner], load, reference) for load in loads[corner])
    assert is_met == (corner not in NOT_MET_BY_A_SEED)


def _meets(corner: Expectation, load: Schedule, reference: Reference) -> bool:
    played = play(load, reference)
    replayer = Replayer(Unwritten(Path("load"), played.header), ())
    for line, event in enumerate(played.judging.events, 2):
        assert replayer.feed(line, event) is None
        if any(corner.holds(replayer.d, ledger) for ledger in replayer.ledgers.values()):
            return True
    return False


@pytest.mark.slow
def test_the_seeds_are_those_of_today() -> None:
    """`make docs` writes them."""
    assert searched(counterexample).splitlines() == [seed.as_json() for seed in seeds()]
