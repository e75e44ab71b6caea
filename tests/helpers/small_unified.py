"""The cache that owns sessions and tree in miniature, with the names of SGLang 0.5.23, and what gives a request's row back."""

from __future__ import annotations

from pathlib import Path

from small_sglang import FILES as SESSION_FILES
from small_sglang import MANAGERS, MEM_CACHE, SESSION, write_files

from kvproof.conformance.adapters.sglang.code.functions import GIVEN, LIBRARIES, claims_of
from kvproof.model.code.claims import Verdict, check
from kvproof.model.code.source import Folder, Sources
from kvproof.spec.profiles import PROFILES

CONTROLLER, UTILS = f"{SESSION}/session_controller.py", "sglang/srt/utils"
COMPONENTS = f"{MEM_CACHE}/unified_cache/components"
FILES = {
    CONTROLLER: SESSION_FILES[CONTROLLER],
    f"{UTILS}/rank_consensus_checker.py": """
from sglang.srt.environ import envs

def rank_consensus(func=None, *, same_params=None):
    def decorator(func):
        if not envs.SGLANG_ENABLE_RANK_CONSENSUS_CHECKER.get():
            return func
        raise NotImplementedError
    return decorator if func is None else decorator(func)
""",
    f"{MANAGERS}/schedule_batch.py": """
import dataclasses
from http import HTTPStatus

from sglang.srt.managers.scheduler_components.new_token_ratio_tracker import NewTokenRatioTracker

@dataclasses.dataclass(slots=True, kw_only=True)
class ReqKvInfo:
    req_pool_idx: int = None
    cache_protected_len: int = 0
    kv_committed_len: int = 0
    kv_allocated_len: int = 0
    component_evicted_seqlens: dict = dataclasses.field(default_factory=dict)

    @property
    def holds_kv(self):
        return self.req_pool_idx is not None

class BaseFinishReason:
    def to_json(self):
        raise NotImplementedError

class FINISH_ABORT(BaseFinishReason):
    def __init__(self, message=None, status_code=None):
        super().__init__()
        self.message, self.status_code = message, status_code

class FINISH_LENGTH(BaseFinishReason):
    pass

class Req:
    def finished(self):
        return self.finished_reason is not None

    def refresh_fill_ids(self):
        there = len(self.full_untruncated_fill_ids) - len(self.origin_input_ids)
        is_shared = self.full_untruncated_fill_ids is self.origin_input_ids
        if is_shared or there < 0 or there > len(self.output_ids):
            self.full_untruncated_fill_ids = self.origin_input_ids + self.output_ids
        else:
            self.full_untruncated_fill_ids.extend(self.output_ids[there:])

    def reset_for_retract(self):
        self.kv = ReqKvInfo()

class ScheduleBatch:
    def release_req(self, idx, remaing_req_count):
        from sglang.srt.mem_cache.common import release_kv_cache

        release_kv_cache(self.reqs[idx], self.tree_cache, checkpoint=False)
        self.reqs[idx].reset_for_retract()

    def retract_decode(self):
        kept = list(range(len(self.reqs)))
        kept.sort(key=lambda i: len(self.reqs[i].output_ids), reverse=True)
        retracted, aborted = [], []
        is_first = True
        while is_first or not self.check_decode_mem(selected_indices=kept):
            if len(kept) == 1:
                break
            is_first = False
            idx = kept.pop()
            self.release_req(idx, len(kept))
            retracted.append(self.reqs[idx])
        if len(kept) <= 1 and not self.check_decode_mem(selected_indices=kept):
            idx = kept.pop()
            last = self.reqs[idx]
            last.to_finish = FINISH_ABORT("no memory", HTTPStatus.INTERNAL_SERVER_ERROR)
            last.finished_reason = last.to_finish
            aborted.append(last)
            self.release_req(idx, 0)
        self.filter_batch(keep_indices=kept)
        return retracted, NewTokenRatioTracker.estimate_new_token_ratio_after_retract(self.reqs), aborted
""",
    f"{MEM_CACHE}/base_prefix_cache.py": """
from dataclasses import dataclass, field
from typing import Any

@dataclass
class InsertParams:
    key: Any = None
    value: Any = None
    prev_prefix_len: int = 0
    component_evicted_seqlens: dict = field(default_factory=dict)

@dataclass
class InsertResult:
    prefix_len: int
    last_device_node: Any = None

@dataclass
class TreeLock:
    node: Any
    receipt: Any
    swa_released: bool = False
""",
    f"{MEM_CACHE}/common.py": """
def release_kv_cache(req, tree_cache, *, checkpoint):
    if tree_cache.session.try_cache_finished_req(req):
        return
    handled = req.kv.kv_committed_len
    if checkpoint and not req.skip_radix_cache_insert:
        tree_cache.checkpoint(req, up_to=handled)
    page_size = tree_cache.page_size
    tree_cache.free_row(req.kv, req.kv.cache_protected_len, handled)
    tree_cache.free_row(req.kv, (handled + page_size - 1) // page_size * page_size, req.kv.kv_allocated_len)
    tree_cache.unlock(req.lock)
    req.lock = None
    tree_cache.req_to_token_pool.free(req)
""",
    f"{COMPONENTS}/full.py": """
class FullComponent:
    def prepare(self, req, params, count):
        return count
""",
    f"{COMPONENTS}/swa.py": """
SWA = 1

class SWAComponent:
    def prepare(self, req, params, count):
        params.component_evicted_seqlens[SWA] = req.kv.component_evicted_seqlens.get(SWA, 0)
        if req.swa_branching_seqlen is None:
            return count
        return min(count, req.swa_branching_seqlen + int(self.tree_core.is_eagle))
""",
    f"{MEM_CACHE}/unified_radix_cache.py": """
import dataclasses

from sglang.srt.mem_cache.base_prefix_cache import InsertParams
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.utils.rank_consensus_checker import rank_consensus

class UnifiedRadixCache:
    @property
    def page_size(self):
        return self.tree_core.page_size

    @rank_consensus(same_params=["up_to"])
    def checkpoint(self, req, *, up_to):
        self.checkpoint_into_tree(req, up_to=up_to)

    def checkpoint_into_tree(self, req, *, up_to):
        if self.disable:
            return
        tokens = (req.origin_input_ids + req.output_ids)[:up_to]
        row = self.req_to_token_pool.req_to_token[req.kv.req_pool_idx]
        params = InsertParams(prev_prefix_len=req.kv.cache_protected_len)
        count = len(tokens)
        for part in self._components_tuple:
            count = min(count, part.prepare(req, params, len(tokens)))
        key = RadixKey(tokens[:count], req.extra_key, is_bigram=self.tree_core.is_eagle).page_aligned(self.page_size)
        params = dataclasses.replace(params, key=key, value=row[: len(key)])
        result = self.insert(params)
        owned = self.path_device_indices(result.last_device_node)
        assert result.prefix_len <= len(owned)
        begin = req.kv.cache_protected_len
        self.req_to_token_pool.write((req.kv.req_pool_idx, slice(begin, len(owned))), owned[begin:])
        self.unlock(req.lock)
        req.lock = self.lock(result.last_device_node)
        req.kv.cache_protected_len = len(owned)

    def unlock(self, lock):
        self.dec_lock_ref(lock.node, lock.receipt, lock.swa_released)

    def free_row(self, kv, start, end):
        if start < end:
            row = self.req_to_token_pool.req_to_token[kv.req_pool_idx]
            self.token_to_kv_pool_allocator.free(row[start:end])
""",
    f"{MEM_CACHE}/radix_cache.py": """
class RadixKey:
    pass
""",
    f"{SESSION}/streaming_session.py": """
from dataclasses import dataclass, field
from typing import Any

from sglang.srt.managers.schedule_batch import FINISH_ABORT, ReqKvInfo

class _VirtualNode:
    pass

@dataclass
class SessionSlot:
    virtual_node: _VirtualNode = field(default_factory=_VirtualNode)
    kv: ReqKvInfo = field(default_factory=ReqKvInfo)
    lock: Any = None
    extra_key: Any = None
    cache_salt: Any = None

class StreamingSession:
    def try_cache_finished_req(self, req):
        if req.session is None or not isinstance(req.finished_reason, FINISH_ABORT):
            return False
        slot = self.slots[req.session.session_id]
        req.lock, slot.lock = slot.lock, None
        del self.slots[req.session.session_id]
        if req.extra_key != slot.extra_key or req.cache_salt != slot.cache_salt:
            req.skip_radix_cache_insert = True
        req.session.abort_req()
        return False
""",
}


def write_unified(folder: Path, right: str = "", wrong: str = "") -> Path:
    """The miniature in a folder, with one text in place of another."""
    return write_files(FILES, folder, right, wrong)


def claim_checked(sglang: Path, name: str, *, to_the_first_difference: bool = False) -> Verdict:
    """The claim of that name, by the rules of SGLang 0.5.23."""
    sources = Sources(Folder(sglang))
    claims = claims_of(sources, PROFILES["sglang-0.5.23"].actions)
    claim = next(claim for claim in claims if claim.name == name)
    return check(claim, sources, LIBRARIES, GIVEN, to_the_first_difference=to_the_first_difference)
