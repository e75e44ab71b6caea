"""A session cache in miniature, with the names of SGLang 0.5.20: what is right is proved, and each wrong line is seen."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from code_proof.__main__ import GIVEN, chosen, exit_code, verdicts
from code_proof.claims import ABSENT, DIFFERS, PROVED, Verdict, check
from code_proof.sglang_claims import session_cache
from code_proof.sglang_objects import TORCH
from code_proof.source import Folder, Sources

from kvproof.spec.actions import ACTIONS

MANAGERS, MEM_CACHE, SESSION = "sglang/srt/managers", "sglang/srt/mem_cache", "sglang/srt/session"
FILES = {
    f"{MANAGERS}/schedule_batch.py": """
import dataclasses

@dataclasses.dataclass(slots=True, kw_only=True)
class ReqKvInfo:
    req_pool_idx: int = None
    cache_protected_len: int = 0
    kv_committed_len: int = 0
    kv_allocated_len: int = 0
    swa_evicted_seqlen: int = 0

    @property
    def holds_kv(self):
        return self.req_pool_idx is not None

class FINISH_ABORT:
    pass

class Req:
    def detach_kv(self):
        kv, self.kv = self.kv, ReqKvInfo()
        return kv
""",
    f"{SESSION}/session_controller.py": """
class SessionReqNode:
    def __init__(self, req):
        self.req = req

class Session:
    def finish_req(self, req):
        self._inflight = False
        if self.req_nodes:
            [previous] = self.req_nodes.values()
            previous.req.session = None
            self.req_nodes.clear()
        self.req_nodes[req.rid] = SessionReqNode(req)
        self.committed_origin_len = len(req.origin_input_ids)

    def abort_req(self):
        self._inflight = False
""",
    f"{MEM_CACHE}/base_prefix_cache.py": """
from typing import Any, NamedTuple

class MatchResult(NamedTuple):
    device_indices: Any
    last_device_node: Any
    last_host_node: Any
    cache_protected_len: int = None
""",
    f"{SESSION}/streaming_session.py": """
from dataclasses import dataclass, field
from typing import Any

from sglang.srt.managers.schedule_batch import FINISH_ABORT, ReqKvInfo
from sglang.srt.mem_cache.base_prefix_cache import MatchResult

class _VirtualNode:
    pass

@dataclass
class SessionSlot:
    virtual_node: _VirtualNode = field(default_factory=_VirtualNode)
    kv: ReqKvInfo = field(default_factory=ReqKvInfo)
    last_node: Any = None
    lock_receipt: Any = None

class StreamingSession:
    def __init__(self, inner):
        self.inner = inner
        self.slots = {}

    def match_prefix(self, params):
        req = params.req
        slot = self.slots.get(req.session.session_id)
        if slot is None or not slot.kv.holds_kv:
            return self.inner.match_prefix(params)
        if req.to_finish is not None:
            req.session.abort_req()
            req.session = None
            return self.inner.match_prefix(params)
        req.kv = slot.kv
        prefix_len = min(req.kv.kv_committed_len, len(params.key.token_ids))
        assert prefix_len >= slot.kv.cache_protected_len
        self._trim(req.kv, prefix_len)
        row = self.inner.req_to_token_pool.req_to_token
        return MatchResult(
            device_indices=row[req.kv.req_pool_idx, :prefix_len],
            last_device_node=slot.virtual_node,
            last_host_node=slot.virtual_node,
            cache_protected_len=slot.kv.cache_protected_len,
        )

    def cache_finished_req(self, req, is_insert=True):
        slot = self.slots.get(req.session.session_id)
        is_first = slot is None
        if is_first:
            slot = SessionSlot(kv=req.kv, last_node=req.last_node, lock_receipt=req.lock_receipt)
            self.slots[req.session.session_id] = slot
        if isinstance(req.finished_reason, FINISH_ABORT):
            req.detach_kv()
            self.release_session(req.session.session_id)
            req.session.abort_req()
            return
        assert req.kv is slot.kv
        if is_insert:
            finished_len = req.finished_len if req.finished_len is not None else len(req.output_ids)
            self._trim(req.kv, len(req.origin_input_ids) + finished_len)
            req.output_ids = req.output_ids[:finished_len]
            req.session.finish_req(req)
        req.detach_kv()

    def _trim(self, kv, target):
        page_size = self.inner.page_size
        self._free(kv, (target + page_size - 1) // page_size * page_size, kv.kv_allocated_len)
        kv.kv_allocated_len = min(kv.kv_allocated_len, target)
        kv.kv_committed_len = min(kv.kv_committed_len, target)
        kv.swa_evicted_seqlen = min(kv.swa_evicted_seqlen, target)

    def _free(self, kv, start, end):
        if start < end:
            row = self.inner.req_to_token_pool.req_to_token[kv.req_pool_idx, start:end]
            self.inner.token_to_kv_pool_allocator.free(row)

    def release_session(self, session_id):
        slot = self.slots.pop(session_id, None)
        self.inner.dec_lock_ref(slot.last_node, slot.lock_receipt)
        self._free(slot.kv, slot.kv.cache_protected_len, slot.kv.kv_allocated_len)
        self.inner.req_to_token_pool.free(slot)
""",
}


@pytest.fixture
def sglang(tmp_path: Path) -> Path:
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def edited(sglang: Path, right: str, wrong: str) -> Path:
    path = next(path for path, text in FILES.items() if right in text)
    (sglang / path).write_text(FILES[path].replace(right, wrong))
    return sglang


def checked(sglang: Path, name: str) -> Verdict:
    claim = next(claim for claim in session_cache(ACTIONS) if claim.name == name)
    function = f"StreamingSession.{claim.function}"
    placed = dataclasses.replace(claim, module="sglang.srt.session.streaming_session", function=function)
    return check(placed, Sources(Folder(sglang)), {"torch": TORCH}, GIVEN, to_the_first_difference=True)


def test_a_right_session_cache_is_proved(sglang: Path) -> None:
    found = verdicts(sglang)

    assert {finding.verdict.claim.name: finding.word for finding in found} == dict.fromkeys(
        ("match_slot", "detach", "finish", "abort_first", "abort_nth", "retract"), PROVED
    )
    assert exit_code(found) == 0


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
def test_a_wrong_line_is_never_a_pass(sglang: Path, name: str, right: str, wrong: str) -> None:
    assert checked(edited(sglang, right, wrong), name).verdict not in (PROVED, ABSENT)


def test_a_retract_that_ends_the_turn_is_a_known_fault_of_the_profile_of_the_release(sglang: Path) -> None:
    (edited(sglang, "        if is_insert:", "        if True:") / "sglang-0.5.20.dist-info").mkdir()
    without, found = (verdicts(sglang, profile, ["retract"]) for profile in (None, chosen("auto", sglang)))

    assert [finding.word for finding in without] == [DIFFERS]
    assert [finding.word for finding in found] == ["known fault S0511a"]
    assert (exit_code(without), exit_code(found)) == (1, 0)


def test_another_design_is_named(sglang: Path) -> None:
    rounded = (
        "\n        if req.kv.swa_evicted_seqlen > prefix_len:\n"
        "            prefix_len = prefix_len // self.inner.page_size * self.inner.page_size\n"
    )
    trimmed = "        self._trim(req.kv, prefix_len)\n"
    (found,) = verdicts(edited(sglang, trimmed, rounded + trimmed), names=["match_slot"])

    assert found.word == DIFFERS
    assert found.instead == "a cut below the window cursor goes down to a page boundary"


def test_an_unknown_profile_is_answered_with_the_known_ones(sglang: Path) -> None:
    with pytest.raises(SystemExit, match=r"choose auto, none or one of sglang-0\.5\.10"):
        chosen("sglang-9", sglang)


def test_a_release_that_no_profile_knows_has_none(sglang: Path) -> None:
    assert chosen("auto", sglang) is None
    assert chosen("none", sglang) is None
    assert chosen("sglang-0.5.23", sglang) is not None
