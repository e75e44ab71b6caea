"""A session cache in miniature, with the names of SGLang 0.5.20: right, and small enough to break line by line."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from kvproof.conformance.adapters.sglang.code.functions import GIVEN, LIBRARIES, claims_of
from kvproof.model.code.claims import Verdict, check
from kvproof.model.code.source import Folder, Sources
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

class FINISH_LENGTH:
    def __init__(self, length):
        self.length = length

class Req:
    def detach_kv(self):
        kv, self.kv = self.kv, ReqKvInfo()
        return kv
""",
    f"{SESSION}/session_controller.py": """
from sglang.srt.managers.schedule_batch import Req

class SessionReqNode:
    def __init__(self, req):
        self.req = req

class Session:
    def __init__(self, session_id):
        self.session_id = session_id
        self.streaming = True
        self.req_nodes = {}
        self.close_on_finish = False
        self._inflight = False
        self.committed_origin_len = None

    def create_req(self, asked, tokenizer, vocab_size):
        refused = self._inflight
        tokens = asked.input_ids
        if self.req_nodes and not refused:
            [last] = self.req_nodes.values()
            tokens = last.req.origin_input_ids + last.req.output_ids + tokens
        turn = Req(rid=asked.rid, origin_input_ids=tokens, session=self)
        if refused:
            turn.set_finish_with_abort("a turn is in flight")
            turn.session = None
        self._inflight = True
        return turn

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

class SessionController:
    def __init__(self, tree_cache):
        self.sessions = {}
        self.tree_cache = tree_cache

    def open(self, asked):
        if asked.session_id not in self.sessions:
            self.sessions[asked.session_id] = Session(asked.session_id)

    def close(self, asked):
        if asked.session_id in self.sessions:
            self._close(asked.session_id)

    def maybe_reap(self, now, interval):
        waiting = [name for name, session in self.sessions.items() if session.close_on_finish]
        for session_id in waiting:
            self.sessions[session_id].close_on_finish = False
            self._close(session_id)

    def _close(self, session_id):
        session = self.sessions[session_id]
        if session._inflight:
            session.close_on_finish = True
            return
        self.tree_cache.release_session(session_id)
        del self.sessions[session_id]
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

    @property
    def req_to_token_pool(self):
        return self.inner.req_to_token_pool

    @property
    def token_to_kv_pool_allocator(self):
        return self.inner.token_to_kv_pool_allocator

    @property
    def page_size(self):
        return self.inner.page_size

    def match_prefix(self, params):
        req = params.req
        slot = self.slots.get(req.session.session_id) if req.session is not None else None
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

    def cache_unfinished_req(self, req, chunked=False):
        if chunked:
            row = self.inner.req_to_token_pool.req_to_token
            req.prefix_indices = row[req.kv.req_pool_idx, 0:req.fill_len]

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
        if slot is None:
            return
        self.inner.dec_lock_ref(slot.last_node, slot.lock_receipt)
        self._free(slot.kv, slot.kv.cache_protected_len, slot.kv.kv_allocated_len)
        self.inner.req_to_token_pool.free(slot)

    def session_held_tokens(self, active_pool_idxs=None):
        return sum(self._from(kv, kv.cache_protected_len) for kv in self._idle(active_pool_idxs))

    def session_held_swa_tokens(self, active_pool_idxs=None):
        idle = self._idle(active_pool_idxs)
        return sum(self._from(kv, max(kv.cache_protected_len, self._page_after(kv.swa_evicted_seqlen))) for kv in idle)

    def session_held_req_count(self, active_pool_idxs=None):
        return len(self._idle(active_pool_idxs))

    def _idle(self, active_pool_idxs):
        return [slot.kv for slot in self.slots.values() if slot.kv.req_pool_idx not in active_pool_idxs]

    def _from(self, kv, start):
        return self._page_after(kv.kv_allocated_len) - start

    def _page_after(self, tokens):
        return (tokens + self.inner.page_size - 1) // self.inner.page_size * self.inner.page_size
""",
}


def write_sglang(folder: Path, right: str = "", wrong: str = "") -> Path:
    """The miniature in a folder, with one text in place of another."""
    return write_files(FILES, folder, right, wrong)


def write_files(files: Mapping[str, str], folder: Path, right: str = "", wrong: str = "") -> Path:
    assert not right or sum(right in text for text in files.values()) == 1
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text.replace(right, wrong) if right else text)
    return folder


def claim_checked(sglang: Path, name: str) -> Verdict:
    """What the claim of that name says of a tree, by the model's own rules."""
    sources = Sources(Folder(sglang))
    claim = next(claim for claim in claims_of(sources, ACTIONS) if claim.name == name)
    return check(claim, sources, LIBRARIES, GIVEN, to_the_first_difference=True)


def commit_sglang(folder: Path, *edits: tuple[str, str]) -> Path:
    """A repository with a commit for each edit of the miniature, the last one checked out, and python/ above the package."""
    (folder / "python").mkdir(parents=True)
    _git(folder, "init", "-q", "-b", "main")
    for number, (right, wrong) in enumerate(edits):
        write_sglang(folder / "python", right, wrong)
        _git(folder, "add", ".")
        _git(folder, "commit", "-q", "--allow-empty", "-m", str(number))
    return folder


def _git(folder: Path, *arguments: str) -> None:
    named = ["-c", "user.name=n", "-c", "user.email=e@e", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *named, *arguments], check=True, capture_output=True)
