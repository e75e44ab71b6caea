"""Each wrong line of a release of a row is seen, and the right one is proved."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from small_release import write_release

from kvproof.conformance.adapters.sglang.code.claims import release_of
from kvproof.conformance.adapters.sglang.code.functions import GIVEN, LIBRARIES
from kvproof.conformance.adapters.sglang.code.request_claims import has_kv, requests
from kvproof.model.code.claims import DIFFERS, PROVED, Claim, check
from kvproof.model.code.source import Folder, Sources
from kvproof.model.prove import induction_step
from kvproof.model.questions import PROVED as KEPT
from kvproof.spec.actions import ACTIONS
from kvproof.spec.invariants import AUXILIARY
from kvproof.spec.machine import LEDGER
from kvproof.spec.profiles import PROFILES

NAMES = (
    "finish, released",
    "abort_first, released",
    "abort_nth, released",
    "retract, released",
    "finish_plain, radix",
    "retract_plain, radix",
    "finish_plain, chunk",
    "retract_plain, chunk",
)


def claims_in(sources: Sources) -> dict[str, Claim]:
    release = release_of(sources, ACTIONS)
    assert release is not None
    return {claim.name: claim for claim in requests(release)}


def test_each_whole_release_is_claimed(tmp_path: Path) -> None:
    assert set(claims_in(Sources(Folder(write_release(tmp_path))))) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_right_release_is_proved(tmp_path: Path, name: str) -> None:
    sources = Sources(Folder(write_release(tmp_path)))

    assert check(claims_in(sources)[name], sources, LIBRARIES, GIVEN).verdict == PROVED


NO_ROW_LEFT = ("    tree_cache.req_to_token_pool.free(req)\n", "")
WRONG = {
    "the window cursor of the slot stays": (
        "finish, released",
        "        kv.swa_evicted_seqlen = min(kv.swa_evicted_seqlen, target)\n",
        "",
    ),
    "an abort frees pages of the tree": (
        "abort_first, released",
        "self._free(slot.kv, slot.kv.cache_protected_len,",
        "self._free(slot.kv, 0,",
    ),
    "an aborted turn's marker stays": (
        "abort_nth, released",
        "            req.session.abort_req()\n            return\n",
        "            return\n",
    ),
    "a retract ends the turn": ("retract, released", "is_insert=False)", "is_insert=True)"),
    "a retracted turn keeps the record": (
        "retract, released",
        "        req.detach_kv()\n\n    def cache_unfinished_req",
        "\n    def cache_unfinished_req",
    ),
    "the row is not returned": ("finish_plain, radix", *NO_ROW_LEFT),
    "the row of a chunk cache is not returned": ("finish_plain, chunk", *NO_ROW_LEFT),
    "pages of the tree are freed as copies": ("finish_plain, radix", "freed_end = self.insert(", "self.insert("),
    "copies are not freed": (
        "finish_plain, radix",
        "(row[req.kv.cache_protected_len : freed_end])",
        "(row[freed_end : freed_end])",
    ),
    "copies are freed from the begin": (
        "finish_plain, radix",
        "free(row[req.kv.cache_protected_len : freed_end])",
        "free(row[:freed_end])",
    ),
    "the last page stays": (
        "finish_plain, radix",
        "        self.token_to_kv_pool_allocator.free(row[len(key) :])\n",
        "",
    ),
    "a page is freed twice": ("finish_plain, radix", ".free(row[len(key) :])", ".free(row)"),
    "the lock is not undone": ("retract_plain, radix", "        self.dec_lock_ref(req.last_node)\n", ""),
    "the lock is undone twice": (
        "finish_plain, radix",
        "        self.dec_lock_ref(req.last_node)\n",
        "        self.dec_lock_ref(req.last_node)\n        self.dec_lock_ref(req.last_node)\n",
    ),
    "an insert is made that was not asked for": (
        "retract_plain, radix",
        "if is_insert and not self.disable_finished_insert",
        "if not self.disable_finished_insert",
    ),
    "the committed length stays": ("retract_plain, chunk", "        self.kv.kv_committed_len = 0\n", ""),
    "the allocated length stays": ("retract_plain, chunk", "    req.kv.kv_allocated_len = 0\n", ""),
    "what is reserved ahead stays": (
        "finish_plain, chunk",
        "    if start < end:\n        row = tree",
        "    if end < start:\n        row = tree",
    ),
    "a page in the middle is freed twice": (
        "finish_plain, chunk",
        "(handled + page_size - 1) // page_size * page_size",
        "handled // page_size * page_size",
    ),
}


@pytest.mark.parametrize(("name", "right", "wrong"), WRONG.values(), ids=WRONG)
def test_a_wrong_line_differs(tmp_path: Path, name: str, right: str, wrong: str) -> None:
    sources = Sources(Folder(write_release(tmp_path, right, wrong)))

    assert check(claims_in(sources)[name], sources, LIBRARIES, GIVEN).verdict == DIFFERS


RUNS = dataclasses.replace(AUXILIARY["X2"], id="has_kv", holds=has_kv)
WITH_KV = dataclasses.replace(LEDGER, auxiliary={**AUXILIARY, "has_kv": RUNS})


@pytest.mark.slow
@pytest.mark.parametrize("profile", [None, "sglang-0.5.11", "sglang-0.5.23"])
def test_rules_leave_a_live_turn_the_kv_of_a_token(profile: str | None) -> None:
    rules = PROFILES[profile].actions if profile else ACTIONS
    broken = {
        name
        for name, action in rules.items()
        for found in induction_step(action, [], machine=WITH_KV)
        if found.invariant == "has_kv" and found.verdict != KEPT
    }

    # Before a later turn's first chunk its window may be evicted; the chunk follows in the same step.
    assert broken == ({"evict_window"} if profile else set())
