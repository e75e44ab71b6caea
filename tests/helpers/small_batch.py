"""A batch in miniature, with the names of SGLang 0.5.20: right, and small enough to break line by line."""

from __future__ import annotations

from pathlib import Path

from small_sglang import FILES as SESSION_FILES
from small_sglang import MANAGERS, MEM_CACHE, write_sglang

SPECULATIVE = "sglang/srt/speculative"

SCHEDULE_BATCH = f"{MANAGERS}/schedule_batch.py"
RECORD = (
    SESSION_FILES[SCHEDULE_BATCH]
    .replace(
        "    @property\n",
        """    def swa_dead_lo(self, page_size):
        return self.cache_protected_len

    @property
""",
        1,
    )
    .replace(
        "class Req:\n",
        """class Req:
    @property
    def seqlen(self):
        return len(self.origin_input_ids) + len(self.output_ids)

""",
    )
)
BATCH = """

from sglang.srt.mem_cache.allocation import alloc_for_decode
from sglang.srt.mem_cache.common import free_swa_out_of_window_slots


@dataclasses.dataclass
class ScheduleBatch:
    reqs: list

    def is_dllm(self):
        return self.dllm_config is not None

    def prepare_for_decode(self):
        if not self.spec_algorithm.is_none():
            return
        self.out_cache_loc = alloc_for_decode(self, token_per_req=1)
        for req in self.reqs:
            req.decode_batch_idx += 1
        self.seq_lens = self.seq_lens + 1
        self.seq_lens_cpu = self.seq_lens_cpu + 1
        self.seq_lens_sum = None
        self.orig_seq_lens = self.orig_seq_lens + 1

    def maybe_evict_swa(self):
        for idx, req in enumerate(self.reqs):
            if self.forward_mode.is_decode():
                if req.decode_batch_idx >= 1:
                    self._evict_swa(req, req.seqlen - 1)
            elif self.tree_cache.is_chunk_cache():
                self._evict_swa(req, self.prefix_lens[idx])

    def _evict_swa(self, req, pre_len):
        free_swa_out_of_window_slots(
            req,
            pre_len,
            self.tree_cache.sliding_window_size,
            self.tree_cache.page_size,
            self.req_to_token_pool,
            self.token_to_kv_pool_allocator,
        )
"""
FILES = {
    SCHEDULE_BATCH: RECORD + BATCH,
    f"{MEM_CACHE}/common.py": """
def free_swa_out_of_window_slots(req, pre_len, window, page_size, pool, allocator):
    assert req.kv.cache_protected_len % page_size == 0
    cursor = max(req.kv.swa_evicted_seqlen, req.kv.cache_protected_len)
    end = max(cursor, (pre_len - window - page_size) // page_size * page_size)
    if end > cursor:
        allocator.free_swa(pool.req_to_token[req.kv.req_pool_idx, cursor:end])
    req.kv.swa_evicted_seqlen = end


def evict_from_tree_cache(tree_cache, num_tokens):
    tree_cache.evict(num_tokens)
""",
    f"{MEM_CACHE}/memory_pool.py": """
class HybridReqToTokenPool:
    pass
""",
    f"{MEM_CACHE}/allocation.py": """
import torch

from sglang.srt.mem_cache.common import evict_from_tree_cache
from sglang.srt.mem_cache.memory_pool import HybridReqToTokenPool


def write_cache_indices(*tensors):
    raise NotImplementedError


def alloc_token_slots(tree_cache, num_tokens):
    evict_from_tree_cache(tree_cache, num_tokens)
    out_cache_loc = tree_cache.token_to_kv_pool_allocator.alloc(num_tokens)
    if out_cache_loc is None:
        raise RuntimeError("out of memory")
    return out_cache_loc


def assign_req_to_token_pool_func(*tensors):
    raise NotImplementedError


def get_last_loc(*tensors):
    raise NotImplementedError


def alloc_for_decode(batch, token_per_req):
    batch.maybe_evict_swa()
    if batch.tree_cache.page_size == 1:
        out_cache_loc = alloc_token_slots(batch.tree_cache, batch.seq_lens.shape[0] * token_per_req)
    else:
        last_loc = batch.req_to_token_pool.req_to_token[batch.req_pool_indices, batch.seq_lens - 1]
        allocator = batch.tree_cache.token_to_kv_pool_allocator
        evict_from_tree_cache(batch.tree_cache, len(batch.seq_lens) * allocator.page_size)
        out_cache_loc = allocator.alloc_decode(
            batch.seq_lens + token_per_req, batch.seq_lens_cpu + token_per_req, last_loc
        )
    batch.req_to_token_pool.write((batch.req_pool_indices, batch.seq_lens.clone()), out_cache_loc.to(torch.int32))
    for req in batch.reqs:
        req.kv.kv_committed_len += token_per_req
        req.kv.kv_allocated_len += token_per_req
    return out_cache_loc


def alloc_for_extend(batch):
    batch.maybe_evict_swa()
    prefix_tensors = [r.prefix_indices for r in batch.reqs]
    prefix_lens_cpu = torch.tensor(batch.prefix_lens, dtype=torch.int64)
    extend_lens_cpu = torch.tensor(batch.extend_lens, dtype=torch.int64)
    prefix_lens_device = prefix_lens_cpu.to(batch.device)
    assert not isinstance(batch.req_to_token_pool, HybridReqToTokenPool)
    rows_cpu = torch.tensor(batch.req_to_token_pool.alloc(batch.reqs), dtype=torch.int64)
    rows = rows_cpu.to(batch.device)
    if batch.tree_cache.page_size == 1:
        out_cache_loc = alloc_token_slots(batch.tree_cache, batch.extend_num_tokens)
    else:
        allocator = batch.tree_cache.token_to_kv_pool_allocator
        evict_from_tree_cache(batch.tree_cache, batch.extend_num_tokens + len(batch.reqs) * allocator.page_size)
        last_loc = [t[-1:] if len(t) > 0 else torch.full((1,), -1) for t in prefix_tensors]
        out_cache_loc = batch.tree_cache.token_to_kv_pool_allocator.alloc_extend(
            prefix_lens_device,
            prefix_lens_cpu,
            batch.seq_lens,
            batch.seq_lens_cpu,
            torch.cat(last_loc),
            batch.extend_num_tokens,
        )
    write_cache_indices(
        out_cache_loc,
        rows,
        rows_cpu,
        prefix_lens_device,
        prefix_lens_cpu,
        batch.seq_lens,
        batch.seq_lens_cpu,
        extend_lens_cpu.to(batch.device),
        extend_lens_cpu,
        prefix_tensors,
        batch.req_to_token_pool,
    )
    for req, seq_len in zip(batch.reqs, batch.seq_lens_cpu.tolist()):
        req.kv.kv_allocated_len = seq_len
        req.kv.kv_committed_len = seq_len
    return out_cache_loc
""",
    f"{SPECULATIVE}/eagle_utils.py": """
import torch

from sglang.srt.mem_cache.allocation import alloc_token_slots, assign_req_to_token_pool_func, get_last_loc
from sglang.srt.mem_cache.common import evict_from_tree_cache
from sglang.srt.mem_cache.allocation_sizing import get_alloc_len_per_decode


def eagle_prepare_for_decode(batch):
    batch.maybe_evict_swa()
    page_size = batch.token_to_kv_pool_allocator.page_size
    cur_kv_lens, nxt_kv_lens, num_needed_tokens = [], [], 0
    for req in batch.reqs:
        cur = req.kv.kv_allocated_len
        nxt = max(cur, (req.kv.kv_committed_len + 2 * get_alloc_len_per_decode() + page_size - 1) // page_size * page_size)
        num_needed_tokens += nxt - cur
        cur_kv_lens += [cur]
        nxt_kv_lens += [nxt]
        req.kv.kv_allocated_len = nxt
    cur_kv_lens_cpu = torch.tensor(cur_kv_lens)
    nxt_kv_lens_cpu = torch.tensor(nxt_kv_lens)
    cur, nxt = cur_kv_lens_cpu.to(batch.device), nxt_kv_lens_cpu.to(batch.device)
    table = batch.req_to_token_pool.req_to_token
    if page_size == 1:
        out_cache_loc = alloc_token_slots(batch.tree_cache, num_needed_tokens)
    else:
        evict_from_tree_cache(batch.tree_cache, num_needed_tokens + len(batch.reqs) * page_size)
        last_loc = get_last_loc(table, batch.req_pool_indices, cur)
        out_cache_loc = batch.token_to_kv_pool_allocator.alloc_extend(
            cur, cur_kv_lens_cpu, nxt, nxt_kv_lens_cpu, last_loc, num_needed_tokens
        )
    assign_req_to_token_pool_func(batch.req_pool_indices, table, cur, nxt, out_cache_loc, len(batch.reqs))
""",
    f"{MEM_CACHE}/allocator.py": """
import torch

from sglang.srt.utils.common import get_num_new_pages


class TokenToKVPoolAllocator:
    def free_group_begin(self):
        self.free_group = []

    def free_group_end(self):
        waiting, self.free_group = self.free_group, None
        if waiting:
            self.free(torch.cat(waiting))

    def free(self, free_index):
        if free_index.numel() == 0:
            return
        if self.free_group is not None:
            self.free_group.append(free_index)
        elif self.need_sort:
            self.release_pages = torch.cat((free_index, self.release_pages))
        else:
            self.free_pages = torch.cat((free_index, self.free_pages))


class PagedTokenToKVPoolAllocator(TokenToKVPoolAllocator):
    def free(self, free_index):
        if free_index.numel() == 0:
            return
        if self.free_group is not None:
            self.free_group.append(free_index)
            return
        self.free_pages = torch.cat((torch.unique(free_index // self.page_size), self.free_pages))

    def free_segment(self, free_index, start_pos):
        assert start_pos % self.page_size == 0
        if free_index.numel() > 0:
            self.free_pages = torch.cat((free_index[:: self.page_size] // self.page_size, self.free_pages))

    def alloc_extend(self, prefix_lens, prefix_lens_cpu, seq_lens, seq_lens_cpu, last_loc, extend_num_tokens):
        bs = len(prefix_lens)
        out_indices = torch.empty((extend_num_tokens,), dtype=torch.int64)
        alloc_extend_kernel[(bs,)](prefix_lens, seq_lens, last_loc, self.free_pages, out_indices, bs, self.page_size)
        num_new_pages = get_num_new_pages(seq_lens_cpu, self.page_size, prefix_lens_cpu)
        if num_new_pages > len(self.free_pages):
            return None
        self.free_pages = self.free_pages[num_new_pages:]
        return out_indices

    def alloc_decode(self, seq_lens, seq_lens_cpu, last_loc):
        bs = len(seq_lens)
        out_indices = torch.empty((bs,), dtype=torch.int64)
        alloc_decode_kernel[(bs,)](seq_lens, last_loc, self.free_pages, out_indices, bs, self.page_size)
        new_pages = get_num_new_pages(seq_lens_cpu, self.page_size)
        if new_pages > len(self.free_pages):
            return None
        self.free_pages = self.free_pages[new_pages:]
        return out_indices


alloc_extend_kernel = alloc_decode_kernel = None
""",
    "sglang/srt/utils/common.py": """
import torch


def get_num_new_pages(seq_lens, page_size, prefix_lens=None):
    assert seq_lens.device == torch.device("cpu")
    if prefix_lens is None:
        return (seq_lens % page_size == 1).int().sum().item()
    after = (seq_lens + page_size - 1) // page_size
    return torch.sum(after - (prefix_lens + page_size - 1) // page_size).to(torch.int64).item()
""",
    f"{MEM_CACHE}/allocation_sizing.py": """
def get_alloc_len_per_decode():
    raise NotImplementedError
""",
    f"{MANAGERS}/scheduler_components/batch_result_processor.py": """
class SchedulerBatchResultProcessor:
    def _resolve_spec_v2_tokens(self, result, batch):
        next_token_ids = result.next_token_ids.tolist()
        accept_lens = result.accept_lens.tolist()
        stride = result.speculative_num_draft_tokens
        predict_tokens = []
        for i, req in enumerate(batch.reqs):
            accept_tokens = next_token_ids[i * stride : i * stride + accept_lens[i]]
            predict_tokens.append(accept_tokens)
            if not req.is_retracted:
                req.kv.kv_committed_len += len(accept_tokens)
        return predict_tokens
""",
    f"{MANAGERS}/scheduler_components/invariant_checker.py": """
class SchedulerInvariantChecker:
    get_chunked_req = None

    def _get_total_uncached_sizes(self):
        batches = [self.get_last_batch()]
        if self.get_running_batch() not in (None, batches[0]):
            batches.append(self.get_running_batch())
        reqs = [req for batch in batches for req in batch.reqs]
        if self.get_chunked_req() is not None:
            reqs += [self.get_chunked_req()]
        full_uncached = 0
        swa_uncached = 0
        counted = set()
        for req in reqs:
            if id(req) in counted or not req.kv.holds_kv:
                continue
            counted.add(id(req))
            allocated_len = (req.kv.kv_allocated_len + self.page_size - 1) // self.page_size * self.page_size
            full_uncached += allocated_len - req.kv.cache_protected_len
            if self.is_hybrid_swa:
                swa_uncached += allocated_len - max(req.kv.cache_protected_len, req.kv.swa_evicted_seqlen)
        return full_uncached, swa_uncached
""",
}


def write_batch(folder: Path, right: str = "", wrong: str = "") -> Path:
    """The miniatures of the session cache and of the batch in a folder, with one text of the latter in place of another."""
    assert not right or sum(text.count(right) for text in FILES.values()) == 1, right
    write_sglang(folder)
    for path, text in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text.replace(right, wrong) if right else text)
    return folder


SETS_LENGTHS = """    for req, seq_len in zip(batch.reqs, batch.seq_lens_cpu.tolist()):
        req.kv.kv_allocated_len = seq_len
        req.kv.kv_committed_len = seq_len
"""
PREPARES = """
    def prepare_for_extend(self):
        reqs = self.reqs
        seq_lens = [r.extend_range.end for r in reqs]
        self.prefix_lens = [len(r.prefix_indices) for r in reqs]
        self.extend_lens = [r.extend_range.length for r in reqs]
        self.extend_num_tokens = sum(r.extend_range.end - len(r.prefix_indices) for r in reqs)
        self.seq_lens_cpu = torch.tensor(seq_lens)
        self.seq_lens = self.seq_lens_cpu.to(self.device)
        self.seq_lens_sum = sum(seq_lens)
        alloc_for_extend(self)
        for req, seq_len in zip(reqs, seq_lens):
            req.extend_batch_idx += 1
            req.kv.kv_committed_len = seq_len
            req.kv.kv_allocated_len = seq_len
"""


def write_older_batch(folder: Path, right: str = "", wrong: str = "") -> Path:
    """The miniature as a release up to 0.5.18 has it: the lengths of an extend are set where the batch is prepared."""
    assert not right or PREPARES.count(right) == 1, right
    write_batch(folder)
    allocation, batch = folder / f"{MEM_CACHE}/allocation.py", folder / SCHEDULE_BATCH
    allocation.write_text(allocation.read_text().replace(SETS_LENGTHS, ""))
    text = batch.read_text().replace("import alloc_for_decode\n", "import alloc_for_decode, alloc_for_extend\n")
    batch.write_text(f"import torch\n{text}{PREPARES.replace(right, wrong) if right else PREPARES}")
    return folder
