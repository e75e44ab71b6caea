"""The session cache in miniature, and beside it what gives a request's row back: a release, a retract, and two plain caches."""

from __future__ import annotations

from pathlib import Path

from small_sglang import FILES as SESSION_FILES
from small_sglang import MANAGERS, MEM_CACHE, write_files

SCHEDULE_BATCH, PREFIX_CACHE = f"{MANAGERS}/schedule_batch.py", f"{MEM_CACHE}/base_prefix_cache.py"
FILES = {
    **SESSION_FILES,
    SCHEDULE_BATCH: SESSION_FILES[SCHEDULE_BATCH]
    + """
    def _compute_max_prefix_len(self, input_len):
        longest = input_len - 1
        if self.return_logprob and self.logprob_start_len >= 0:
            longest = min(longest, self.logprob_start_len)
        return max(longest, 0)

    def pop_committed_kv_cache(self):
        assert not self.kv_committed_freed
        self.kv_committed_freed = True
        return self.kv.kv_committed_len

    def pop_overallocated_kv_cache(self):
        assert not self.kv_overallocated_freed
        self.kv_overallocated_freed = True
        return self.kv.kv_committed_len, self.kv.kv_allocated_len

    def reset_for_retract(self):
        self.prefix_indices = None
        self.last_node = None
        self.kv.cache_protected_len = 0
        self.kv.kv_committed_len = 0

class ScheduleBatch:
    def release_req(self, idx, remaing_req_count):
        from sglang.srt.mem_cache.common import evict_from_tree_cache, release_kv_cache

        req = self.reqs[idx]
        release_kv_cache(req, self.tree_cache, is_insert=False)
        evict_from_tree_cache(self.tree_cache, remaing_req_count)
        req.reset_for_retract()
""",
    PREFIX_CACHE: SESSION_FILES[PREFIX_CACHE]
    + """
class InsertParams(NamedTuple):
    key: Any
    value: Any

class InsertResult(NamedTuple):
    prefix_len: int

class MatchPrefixParams(NamedTuple):
    key: Any
""",
    f"{MEM_CACHE}/common.py": """
def release_kv_cache(req, tree_cache, is_insert=True):
    assert req.kv.holds_kv
    handled = req.kv.kv_committed_len
    tree_cache.cache_finished_req(req, is_insert and not req.skip_radix_cache_insert)
    if not req.kv.holds_kv:
        return
    page_size = tree_cache.page_size
    start, end = (handled + page_size - 1) // page_size * page_size, req.kv.kv_allocated_len
    if start < end:
        row = tree_cache.req_to_token_pool.req_to_token[req.kv.req_pool_idx]
        tree_cache.token_to_kv_pool_allocator.free(row[start:end])
    tree_cache.req_to_token_pool.free(req)
    req.kv.kv_allocated_len = 0
    req.kv.swa_evicted_seqlen = 0
""",
    f"{MEM_CACHE}/radix_cache.py": """
import torch

from sglang.srt.mem_cache.base_prefix_cache import InsertParams, MatchPrefixParams

class RadixCache:
    def cache_finished_req(self, req, is_insert=True):
        row = self.req_to_token_pool.req_to_token[req.kv.req_pool_idx, : req.kv.kv_committed_len]
        if self.disable:
            self.token_to_kv_pool_allocator.free(row)
            return
        tokens = (req.origin_input_ids + req.output_ids)[: req.kv.kv_committed_len]
        key = RadixKey(tokens, req.extra_key).page_aligned(self.page_size)
        freed_end = len(key)
        if is_insert and not self.disable_finished_insert:
            freed_end = self.insert(InsertParams(key=key, value=row[: len(key)])).prefix_len
        self.token_to_kv_pool_allocator.free(row[req.kv.cache_protected_len : freed_end])
        self.token_to_kv_pool_allocator.free(row[len(key) :])
        self.dec_lock_ref(req.last_node)

    def cache_unfinished_req(self, req, chunked=False):
        row = self.req_to_token_pool.req_to_token[req.kv.req_pool_idx, : len(req.fill_ids)]
        key = RadixKey(req.fill_ids, req.extra_key).page_aligned(self.page_size)
        had = self.insert(InsertParams(key=key, value=row[: len(key)])).prefix_len
        begin = req.kv.cache_protected_len
        self.token_to_kv_pool_allocator.free(row[begin:had])
        match = self.match_prefix(MatchPrefixParams(key=key))
        indices = match.device_indices
        self.req_to_token_pool.write((req.kv.req_pool_idx, slice(begin, len(indices))), indices[begin:])
        req.kv.cache_protected_len = len(indices)
        self.dec_lock_ref(req.last_node)
        self.inc_lock_ref(match.last_device_node)
        req.prefix_indices = torch.cat([indices, row[len(indices) :]])
""",
    f"{MEM_CACHE}/chunk_cache.py": """
class ChunkCache:
    def cache_finished_req(self, req, is_insert=True):
        row = self.req_to_token_pool.req_to_token[req.kv.req_pool_idx]
        self.token_to_kv_pool_allocator.free(row[req.kv.cache_protected_len : req.kv.kv_committed_len])

    def cache_unfinished_req(self, req, chunked=False):
        row = self.req_to_token_pool.req_to_token
        req.prefix_indices = row[req.kv.req_pool_idx, : len(req.fill_ids)].clone()
""",
}


def write_release(folder: Path, right: str = "", wrong: str = "") -> Path:
    """The miniature in a folder, with one text in place of another."""
    return write_files(FILES, folder, right, wrong)
