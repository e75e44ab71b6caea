"""Each wrong line of a session cache is seen, and the right one is proved."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_sglang import write_sglang

from kvproof.conformance.adapters.sglang.code.claims import release_of
from kvproof.conformance.adapters.sglang.code.functions import GIVEN, LIBRARIES, claims_of
from kvproof.conformance.adapters.sglang.code.session_claims import session_cache
from kvproof.model.code.claims import ABSENT, PROVED, Verdict, check
from kvproof.model.code.source import Folder, Sources
from kvproof.spec.actions import ACTIONS


def checked(sglang: Path, name: str) -> Verdict:
    sources = Sources(Folder(sglang))
    claim = next(claim for claim in claims_of(sources, ACTIONS) if claim.name == name)
    return check(claim, sources, LIBRARIES, GIVEN, to_the_first_difference=True)


def test_a_right_session_cache_is_proved(tmp_path: Path) -> None:
    sources = Sources(Folder(write_sglang(tmp_path)))
    release = release_of(sources, ACTIONS)
    assert release is not None

    assert {
        claim.name: check(claim, sources, LIBRARIES, GIVEN).verdict for claim in session_cache(release)
    } == dict.fromkeys(("match_slot", "detach", "finish", "abort_first", "abort_nth", "retract"), PROVED)


WRONG = {
    "no tail is freed": ("match_slot", "        self._trim(req.kv, prefix_len)\n", ""),
    "the turn has another record": (
        "match_slot",
        "        return MatchResult(",
        "        req.kv = ReqKvInfo()\n        return MatchResult(",
    ),
    "another node is handed on": (
        "match_slot",
        "last_device_node=slot.virtual_node",
        "last_device_node=slot.last_node",
    ),
    "indices from the second position on": ("match_slot", ":prefix_len]", "1:prefix_len]"),
    "the table of the slots is new": (
        "match_slot",
        "        req.kv = slot.kv\n",
        "        req.kv = slot.kv\n        self.slots = {}\n",
    ),
    "R is C": ("match_slot", "cache_protected_len=slot.kv.cache_protected_len", "cache_protected_len=prefix_len"),
    "the marker stays": (
        "detach",
        "            req.session.abort_req()\n            req.session = None",
        "            req.session = None",
    ),
    "the turn stays in its session": ("detach", "            req.session = None\n", ""),
    "the tree is not asked": (
        "detach",
        "req.session = None\n            return self.inner.match_prefix(params)",
        "req.session = None\n            return None",
    ),
    "the cut page is freed": ("finish", "(target + page_size - 1) // page_size", "target // page_size"),
    "the window cursor stays": ("finish", "        kv.swa_evicted_seqlen = min(kv.swa_evicted_seqlen, target)\n", ""),
    "the checkpoint stays": ("finish", "        self.req_nodes[req.rid] = SessionReqNode(req)\n", ""),
    "the rollback point is wrong": ("finish", "len(req.origin_input_ids)\n\n", "len(req.output_ids)\n\n"),
    "the output is not cut": ("finish", "            req.output_ids = req.output_ids[:finished_len]\n", ""),
    "the slot forgets the locked node": ("finish", "last_node=req.last_node, ", ""),
    "the slot forgets the receipt": ("finish", ", lock_receipt=req.lock_receipt", ""),
    "the request keeps the record": ("finish", "        req.detach_kv()\n\n", "\n"),
    "the tree is asked as well": (
        "finish",
        "        req.detach_kv()\n\n",
        "        req.detach_kv()\n        self.inner.cache_finished_req(req)\n\n",
    ),
    "the lock is not undone": (
        "abort_first",
        "        self.inner.dec_lock_ref(slot.last_node, slot.lock_receipt)\n",
        "",
    ),
    "the lock is undone without its receipt": (
        "abort_first",
        "dec_lock_ref(slot.last_node, slot.lock_receipt)",
        "dec_lock_ref(slot.last_node)",
    ),
    "the row is not returned": ("abort_first", "        self.inner.req_to_token_pool.free(slot)\n", ""),
    "pages of the tree are freed": (
        "abort_nth",
        "self._free(slot.kv, slot.kv.cache_protected_len,",
        "self._free(slot.kv, 0,",
    ),
    "the aborted turn is saved": (
        "abort_nth",
        "isinstance(req.finished_reason, FINISH_ABORT)",
        "req.finished_reason is None",
    ),
    "a retract ends the turn": ("retract", "        if is_insert:", "        if True:"),
}


@pytest.mark.parametrize(("name", "right", "wrong"), WRONG.values(), ids=WRONG)
def test_a_wrong_line_is_never_a_pass(tmp_path: Path, name: str, right: str, wrong: str) -> None:
    assert checked(write_sglang(tmp_path, right, wrong), name).verdict not in (PROVED, ABSENT)
