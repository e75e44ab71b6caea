"""Mutants of a session cache in miniature: wrong ones are refuted, harmless ones are not, and what shifts no number is none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from code_mutation import judging
from code_mutation.judging import NO_MUTANT, REFUTED, SAME, Case, Followed, cases, followed, judged, mutants_of
from small_sglang import write_sglang

from kvproof.conformance.adapters.sglang.code.functions import claims_of
from kvproof.model.code.claims import Claim
from kvproof.model.code.source import Folder, Sources
from kvproof.spec.actions import ACTIONS, Action

ASKED = ("match_slot", "finish", "abort_first", "retract")


@pytest.fixture(scope="module", autouse=True)
def few_claims() -> Iterator[None]:
    """Of all claims those that are asked here: the others take as long."""

    def few(sources: Sources, actions: Mapping[str, Action]) -> list[Claim]:
        return [claim for claim in claims_of(sources, actions) if claim.name in ASKED]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging, "claims_of", few)
        yield


@pytest.fixture(scope="module")
def miniature(tmp_path_factory: pytest.TempPathFactory) -> tuple[Folder, list[Followed], list[Case]]:
    tree = Folder(write_sglang(tmp_path_factory.mktemp("sglang")))
    claims, left_out = followed(tree, ACTIONS)
    assert left_out == []
    return tree, claims, list(cases(tree, claims, {mutant.key for mutant in mutants_of(tree, claims)}))


@pytest.mark.parametrize(
    ("original", "mutated", "outcome"),
    [
        ("min(kv.kv_allocated_len, target)", "max", REFUTED),
        ("self.inner.dec_lock_ref(slot.last_node, slot.lock_receipt)", "(dropped)", REFUTED),
        ("is_insert", "False", REFUTED),
        ("target", "target + 1", REFUTED),
        ("start < end", "True", SAME),
        ("slot.last_node", "slot.last_node + 1", NO_MUTANT),
    ],
)
def test_a_mutant_is_judged(
    miniature: tuple[Folder, list[Followed], list[Case]], original: str, mutated: str, outcome: str
) -> None:
    tree, claims, everything = miniature
    case = next(c for c in everything if (c.mutant.original, c.mutant.mutated) == (original, mutated))

    assert judged(Sources(tree), case, claims)["outcome"] == outcome


def test_mutants_are_of_statements_that_a_claim_runs_and_are_named_once(
    miniature: tuple[Folder, list[Followed], list[Case]],
) -> None:
    _, _, everything = miniature
    keys = [case.mutant.key for case in everything]

    assert len(keys) == len(set(keys)) > 100
    assert all(case.claims for case in everything)
    assert {case.mutant.function for case in everything} >= {"Session.finish_req", "StreamingSession._trim"}


def test_a_function_that_follows_no_rule_is_left_out(tmp_path: Path) -> None:
    wrong = ("        self.inner.dec_lock_ref(slot.last_node, slot.lock_receipt)\n", "")

    claims, left_out = followed(Folder(write_sglang(tmp_path, *wrong)), ACTIONS)

    assert "abort_first" not in {claim.claim.name for claim in claims}
    assert any("abort_first" in name for name in left_out)
