"""The caches of sglang-jax in miniature, with its names since #994: right, and small enough to break line by line."""

from __future__ import annotations

from pathlib import Path

from small_sglang import write_files

SRT = "sgl_jax/srt"
FILES = {
    "sgl_jax/global_config.py": "global_config = None\n",
    f"{SRT}/managers/schedule_batch.py": """
from sgl_jax.global_config import global_config
from sgl_jax.srt.mem_cache.common import release_kv_cache

class Req:
    def begins_anew(self):
        self.kv_committed_len = 0
        self.kv_allocated_len = 0
        self.cache_protected_len = 0

class ScheduleBatch:
    def release_req(self, idx, dp_rank, remaing_req_count, server_args):
        req = self.reqs_info[dp_rank].reqs[idx]
        release_kv_cache(req, self.tree_cache, is_insert=False)
        self._evict_tree_cache_if_needed({dp_rank: remaing_req_count * global_config.retract_decode_steps})
        req.begins_anew()
""",
    f"{SRT}/mem_cache/common.py": """
def release_kv_cache(req, tree_cache, is_insert=True):
    tree_cache.cache_finished_req(req, is_insert)
    tree_cache.req_to_token_pool.free(req)
""",
    f"{SRT}/mem_cache/radix_cache.py": """
import numpy as np

class RadixKey:
    def __init__(self, token_ids, extra_key=None, dp_rank=None):
        self.token_ids = token_ids

class RadixCache:
    def cache_finished_req(self, req, is_insert=True):
        row = self.req_to_token_pool.read(req.req_pool_idx, req.kv_committed_len)
        row = row[row != 0]
        if self.disable:
            self.token_to_kv_pool_allocator.free(row, dp_rank=0)
            return
        kept = len(row) // self.page_size * self.page_size
        self.token_to_kv_pool_allocator.free(row[kept:], dp_rank=0)
        freed_end = kept
        if is_insert:
            tokens = (req.origin_input_ids + req.output_ids)[:kept]
            freed_end = self.insert(RadixKey(tokens), row[:kept].copy())
        self.token_to_kv_pool_allocator.free(row[req.cache_protected_len : freed_end], dp_rank=0)
        self.dec_lock_ref(req.last_node)

    def cache_unfinished_req(self, req):
        row = self.req_to_token_pool.read(req.req_pool_idx, len(req.fill_ids))
        kept = len(req.fill_ids) // self.page_size * self.page_size
        key = RadixKey(req.fill_ids[:kept])
        had = self.insert(key, row[:kept].copy())
        begin = req.cache_protected_len
        self.token_to_kv_pool_allocator.free(row[begin:had], dp_rank=0)
        match = self.match_prefix(key)
        indices = match.device_indices
        self.req_to_token_pool.write((req.req_pool_idx, slice(begin, len(indices))), indices[begin:])
        req.cache_protected_len = len(indices)
        self.dec_lock_ref(req.last_node)
        self.inc_lock_ref(match.last_device_node)
        req.prefix_indices = np.concat([indices, row[len(indices) :]])
""",
    f"{SRT}/mem_cache/chunk_cache.py": """
class ChunkCache:
    def cache_finished_req(self, req, is_insert=True):
        row = self.req_to_token_pool.req_to_token[req.req_pool_idx, : req.kv_committed_len]
        self.token_to_kv_pool_allocator.free(row, 0)

    def cache_unfinished_req(self, req):
        row = self.req_to_token_pool.req_to_token
        req.prefix_indices = row[req.req_pool_idx, : len(req.fill_ids)].copy()
""",
}
OLD_LENGTH = "len(req.origin_input_ids) + max(len(req.output_ids) - 1, 0)"
"""What a release took the KV of a request to be before #994."""


def write_jax(folder: Path, right: str = "", wrong: str = "") -> Path:
    """The miniature in a folder, with one text in place of another."""
    return write_files(FILES, folder, right, wrong)
