"""The functions of sglang-jax that own pages: each wrong line is seen, and the right one is proved."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from small_jax import OLD_LENGTH, write_jax

from kvproof.conformance.adapters.sglang_jax.code.functions import GIVEN, claims_of, prefix_ends_behind_the_tree
from kvproof.model.code.claims import DIFFERS, NOT_UNDERSTOOD, PROVED, Verdict, check
from kvproof.model.code.source import Folder, Sources
from kvproof.model.prove import induction_step
from kvproof.model.questions import PROVED as KEPT
from kvproof.spec.actions import ACTIONS
from kvproof.spec.invariants import AUXILIARY
from kvproof.spec.machine import LEDGER

NAMES = (
    "finish_plain, radix",
    "retract_plain, radix",
    "finish_plain, chunk",
    "retract_plain, chunk",
    "insert, radix",
    "stash, chunk",
)


def checked(folder: Path, name: str) -> Verdict:
    sources = Sources(Folder(folder))
    claim = next(claim for claim in claims_of(sources, ACTIONS) if claim.name == name)
    return check(claim, sources, {}, GIVEN)


def test_each_function_is_claimed(tmp_path: Path) -> None:
    assert [claim.name for claim in claims_of(Sources(Folder(write_jax(tmp_path))), ACTIONS)] == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_right_function_is_proved(tmp_path: Path, name: str) -> None:
    assert checked(write_jax(tmp_path), name).verdict == PROVED


COMMITTED = "read(req.req_pool_idx, req.kv_committed_len)"
WRONG = {
    "the KV of the step in flight stays": ("finish_plain, radix", COMMITTED, f"read(req.req_pool_idx, {OLD_LENGTH})"),
    "it stays on a chunk cache": (
        "finish_plain, chunk",
        "[req.req_pool_idx, : req.kv_committed_len]",
        f"[req.req_pool_idx, : {OLD_LENGTH}]",
    ),
    "the last position stays": (
        "finish_plain, chunk",
        "free(row, 0)",
        "free(row[:-1], 0)",
    ),
    "the tail is freed twice": (
        "finish_plain, radix",
        "        self.token_to_kv_pool_allocator.free(row[kept:], dp_rank=0)\n",
        "        self.token_to_kv_pool_allocator.free(row[kept:], dp_rank=0)\n" * 2,
    ),
    "copies are freed from the begin": (
        "finish_plain, radix",
        "row[req.cache_protected_len : freed_end]",
        "row[:freed_end]",
    ),
    "the row is not returned": ("retract_plain, chunk", "    tree_cache.req_to_token_pool.free(req)\n", ""),
    "the lock is not undone": (
        "retract_plain, radix",
        "freed_end], dp_rank=0)\n        self.dec_lock_ref(req.last_node)\n",
        "freed_end], dp_rank=0)\n",
    ),
    "a retracted request goes into the tree": ("retract_plain, radix", ", is_insert=False)", ")"),
    "the lengths of a retracted request stay": ("retract_plain, radix", "        req.begins_anew()\n", ""),
    "copies are counted from the prefix, not from the tree": (
        "insert, radix",
        "begin = req.cache_protected_len",
        "begin = len(req.prefix_indices)",
    ),
    "the tree's part stays": ("insert, radix", "        req.cache_protected_len = len(indices)\n", ""),
    "the chunk ends with its last whole page": (
        "insert, radix",
        "np.concat([indices, row[len(indices) :]])",
        "indices",
    ),
    "the chunk is not kept whole": ("stash, chunk", ": len(req.fill_ids)]", ": len(req.fill_ids) - 1]"),
}


@pytest.mark.parametrize(("name", "right", "wrong"), WRONG.values(), ids=WRONG)
def test_a_wrong_line_differs(tmp_path: Path, name: str, right: str, wrong: str) -> None:
    assert checked(write_jax(tmp_path, right, wrong), name).verdict == DIFFERS


HIDDEN = {
    "a mask of positions without a slot": ("row = row[row != 0]", "row = row[row == 0]"),
    "a mask of other indices": ("row = row[row != 0]", "row = row[row[:1] != 0]"),
    "another rank's slots": ("free(row[kept:], dp_rank=0)", "free(row[kept:], dp_rank=1)"),
    "an insert of other indices": (
        "self.insert(RadixKey(tokens), row[:kept]",
        "self.insert(RadixKey(tokens), row[1:kept]",
    ),
}


@pytest.mark.parametrize(("right", "wrong"), HIDDEN.values(), ids=HIDDEN)
def test_what_is_not_described_is_not_understood(tmp_path: Path, right: str, wrong: str) -> None:
    assert checked(write_jax(tmp_path, right, wrong), "finish_plain, radix").verdict == NOT_UNDERSTOOD


OF_TREE = dataclasses.replace(AUXILIARY["X2"], id="of_tree", holds=prefix_ends_behind_the_tree)


def test_no_rule_moves_the_prefix_from_what_the_tree_owns() -> None:
    machine = dataclasses.replace(LEDGER, auxiliary={**AUXILIARY, "of_tree": OF_TREE})
    found = [f for action in ACTIONS.values() for f in induction_step(action, [], machine=machine)]

    assert {f.verdict for f in found if f.invariant == "of_tree"} == {KEPT}
