"""Schedules from the prover: what the shortest run of a fault's model is to users brings the implementation to the same fault."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
from kvproof.conformance.adapters.reference import faults_of_the_reference
from kvproof.conformance.fuzz.play import play
from kvproof.conformance.fuzz.reference import Reference
from kvproof.conformance.fuzz.seeds import searched, seeds

# The search has to find these itself: they take a wait, a full pool or a tree with a branch, which no user's act brings about.
NOT_BY_A_SEED = {"F21875b", "F22790c", "F22735", "F22753", "F994a", "F994b", "F994d"}


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


@pytest.mark.slow
def test_the_seeds_are_those_of_today() -> None:
    """`make docs` writes them."""
    assert searched().splitlines() == [seed.as_json() for seed in seeds()]
