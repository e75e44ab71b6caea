"""Each wrong term of the memory check is seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_sglang import claim_checked, write_sglang

from kvproof.model.code.claims import DIFFERS

WRONG = {
    "pages of the tree are counted": (
        "check, slots",
        "self._from(kv, kv.cache_protected_len) for",
        "self._from(kv, 0) for",
    ),
    "the last page counts by its tokens": (
        "check, slots",
        "self._page_after(kv.kv_allocated_len) - start",
        "kv.kv_allocated_len - start",
    ),
    "the slot of a turn that runs is counted": ("check, slots", " if slot.kv.req_pool_idx not in active_pool_idxs", ""),
    "only one slot is counted": (
        "check, slots",
        "in self._idle(active_pool_idxs))",
        "in self._idle(active_pool_idxs)[:1])",
    ),
    "the page of the cursor counts by its tokens": (
        "check, slots' window",
        "self._page_after(kv.swa_evicted_seqlen)",
        "kv.swa_evicted_seqlen",
    ),
    "the cursor is forgotten": (
        "check, slots' window",
        "max(kv.cache_protected_len, self._page_after(kv.swa_evicted_seqlen))",
        "kv.cache_protected_len",
    ),
    "a row is counted twice": (
        "check, slots' rows",
        "return len(self._idle(active_pool_idxs))",
        "return len(self._idle(active_pool_idxs)) + 1",
    ),
}


@pytest.mark.parametrize(("name", "right", "wrong"), WRONG.values(), ids=WRONG)
def test_a_wrong_line_differs(tmp_path: Path, name: str, right: str, wrong: str) -> None:
    assert claim_checked(write_sglang(tmp_path, right, wrong), name).verdict == DIFFERS
