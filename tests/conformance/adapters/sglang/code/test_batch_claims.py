"""Each wrong line of a batch is seen, and the right one is proved."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_batch import write_batch, write_older_batch

from kvproof.conformance.adapters.sglang.code.batch_claims import batch
from kvproof.conformance.adapters.sglang.code.claims import release_of
from kvproof.conformance.adapters.sglang.code.functions import GIVEN, LIBRARIES
from kvproof.model.code.claims import DIFFERS, PROVED, Claim, Verdict, check
from kvproof.model.code.source import Folder, Sources
from kvproof.spec.actions import ACTIONS

NAMES = (
    "evict_window",
    "check, live turns",
    "check, live turns' window",
    "decode",
    "extend",
    "result",
    "late_result",
    "prepare_round",
    "evict_window, when",
)


def claims(sglang: Path) -> tuple[Sources, dict[str, Claim]]:
    sources = Sources(Folder(sglang))
    release = release_of(sources, ACTIONS)
    assert release is not None
    return sources, {claim.name: claim for claim in batch(release)}


def checked(sglang: Path, name: str) -> Verdict:
    sources, by_name = claims(sglang)
    return check(by_name[name], sources, LIBRARIES, GIVEN)


@pytest.mark.parametrize("name", NAMES)
def test_a_right_batch_is_proved(tmp_path: Path, name: str) -> None:
    assert checked(write_batch(tmp_path), name).verdict == PROVED


def test_every_claim_about_a_batch_is_tested(tmp_path: Path) -> None:
    assert set(claims(write_batch(tmp_path))[1]) == set(NAMES) == {name for name, _, _ in WRONG.values()}


FULL, WINDOW = NAMES[1:3]
LOST = "        allocator.free_swa(pool.req_to_token[req.kv.req_pool_idx, cursor:end])\n"
WRONG = {
    "the token of the step leaves the window": ("evict_window, when", "req.seqlen - 1)", "req.seqlen)"),
    "the chunk leaves the window": ("evict_window, when", "self.prefix_lens[idx])", "self.prefix_lens[idx] + 1)"),
    "C moves while it is asked": (
        "evict_window, when",
        "                if req.decode_batch_idx >= 1:\n",
        "                req.kv.kv_committed_len += 1\n                if req.decode_batch_idx >= 1:\n",
    ),
    "no page of slack": ("evict_window", "pre_len - window - page_size", "pre_len - window"),
    "no window page is freed": ("evict_window", LOST, "        pass\n"),
    "pages of the tree leave the window": (
        "evict_window",
        "max(req.kv.swa_evicted_seqlen, req.kv.cache_protected_len)",
        "req.kv.swa_evicted_seqlen",
    ),
    "the cursor stays": ("evict_window", "    req.kv.swa_evicted_seqlen = end\n", ""),
    "the cursor is within a page": ("evict_window", "- page_size) // page_size * page_size)\n", "- page_size))\n"),
    "C moves with the cursor": (
        "evict_window",
        "    req.kv.swa_evicted_seqlen = end\n",
        "    req.kv.swa_evicted_seqlen = end\n    req.kv.kv_committed_len += 1\n",
    ),
    "a page that is begun is not counted": (FULL, "kv_allocated_len + self.page_size - 1)", "kv_allocated_len)"),
    "a turn counts in each batch": (FULL, "counted.add(id(req))", "pass"),
    "a turn that is parked counts nowhere": (FULL, "reqs += [self.get_chunked_req()]", "pass"),
    "the running batch is not counted": (FULL, "            batches.append(self.get_running_batch())\n", "            pass\n"),
    "what is evicted counts": (WINDOW, "max(req.kv.cache_protected_len, req.kv.swa_evicted_seqlen)", "0"),
    "a window is counted where there is none": (WINDOW, "if self.is_hybrid_swa:", "if True:"),
    "two tokens a step": ("decode", "token_per_req=1)", "token_per_req=2)"),
    "C stays": ("decode", "        req.kv.kv_committed_len += token_per_req\n", ""),
    "A stays": ("decode", "        req.kv.kv_allocated_len += token_per_req\n", ""),
    "the batch's lengths stay": ("decode", "        self.seq_lens_cpu = self.seq_lens_cpu + 1\n", ""),
    "the step in flight sees it": ("decode", "self.seq_lens_cpu = self.seq_lens_cpu + 1", "self.seq_lens_cpu.add_(1)"),
    "a step is not counted": ("decode", "            req.decode_batch_idx += 1\n", "            pass\n"),
    "the sum of the lengths stays": ("decode", "        self.seq_lens_sum = None\n", ""),
    "no room is made for the page of a step": ("decode", "len(batch.seq_lens) * allocator.page_size)", "0)"),
    "no room is made for the pages that are begun": (
        "extend",
        "batch.extend_num_tokens + len(batch.reqs) * allocator.page_size",
        "batch.extend_num_tokens",
    ),
    "the slot before an empty prefix is the first": ("extend", "torch.full((1,), -1)", "torch.full((1,), 0)"),
    "the slot before the last one": ("decode", "batch.seq_lens - 1]", "batch.seq_lens - 2]"),
    "the lengths before the step": ("decode", "            batch.seq_lens + token_per_req, ", "            batch.seq_lens, "),
    "a slot for one request": ("decode", "batch.seq_lens.shape[0] * token_per_req", "token_per_req"),
    "the slots are not written": (
        "decode",
        "    batch.req_to_token_pool.write((batch.req_pool_indices, batch.seq_lens.clone()), out_cache_loc.to(torch.int32))\n",
        "",
    ),
    "the last slot is overwritten": ("decode", "batch.seq_lens.clone()", "batch.seq_lens - 1"),
    "the prefix is thought empty": ("extend", "torch.tensor(batch.prefix_lens,", "torch.tensor([0],"),
    "no row is taken": ("extend", "batch.req_to_token_pool.alloc(batch.reqs)", "[r.kv.req_pool_idx for r in batch.reqs]"),
    "the first page of the prefix continues": ("extend", "t[-1:] if", "t[:1] if"),
    "the lengths stay": ("extend", "        req.kv.kv_committed_len = seq_len\n", ""),
    "the bonus is not committed": ("result", "+= len(accept_tokens)", "+= len(accept_tokens) - 1"),
    "a token is lost": ("result", "i * stride + accept_lens[i]]", "i * stride + accept_lens[i] - 1]"),
    "a late result counts": ("late_result", "            if not req.is_retracted:\n", "            if True:\n"),
    "a round reserves for itself alone": ("prepare_round", "2 * get_alloc_len_per_decode()", "get_alloc_len_per_decode()"),
    "what is allocated shrinks": ("prepare_round", "max(cur, (req", "max(0, (req"),
    "the page is not filled": ("prepare_round", " + page_size - 1) // page_size * page_size)", ") // page_size * page_size)"),
    "A is not kept": ("prepare_round", "        req.kv.kv_allocated_len = nxt\n", ""),
    "a round claims its bonus": ("prepare_round", "= nxt\n", "= nxt\n        req.kv.kv_committed_len = cur\n"),
    "a round's slots are written elsewhere": ("prepare_round", "table, cur, nxt, out", "table, cur - 1, nxt - 1, out"),
    "one slot for all": ("extend", "batch.tree_cache, batch.extend_num_tokens)", "batch.tree_cache, 1)"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "right", "wrong"), WRONG.values(), ids=WRONG)
def test_a_wrong_line_differs(tmp_path: Path, name: str, right: str, wrong: str) -> None:
    assert checked(write_batch(tmp_path, right, wrong), name).verdict == DIFFERS


def test_an_older_batch_sets_the_lengths_of_an_extend_itself(tmp_path: Path) -> None:
    write_older_batch(tmp_path)

    assert [checked(tmp_path, name).verdict for name in ("extend", "extend, whole")] == [PROVED, PROVED]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("            req.kv.kv_committed_len = seq_len\n", ""),
        ("            req.kv.kv_allocated_len = seq_len\n", ""),
        ("sum(r.extend_range.end - len(r.prefix_indices) for", "sum(r.extend_range.end for"),
        ("[len(r.prefix_indices) for r in reqs]", "[0 for r in reqs]"),
        ("[r.extend_range.end for r in reqs]", "[r.extend_range.end + 1 for r in reqs]"),
        ("            req.extend_batch_idx += 1\n", ""),
        ("sum(seq_lens)", "len(seq_lens)"),
    ],
)
def test_a_wrong_line_of_an_older_batch_differs(tmp_path: Path, right: str, wrong: str) -> None:
    assert checked(write_older_batch(tmp_path, right, wrong), "extend, whole").verdict == DIFFERS
