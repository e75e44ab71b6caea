"""What ends in the cache that owns sessions and tree: each wrong line is seen, and the right one is proved."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_unified import claim_checked, write_unified

from kvproof.model.code.claims import DIFFERS, PROVED

NAMES = (
    "abort_first, released",
    "abort_nth, released",
    "abort_nth, another namespace",
    "refresh, tokens to fill",
    "finish_plain, unified",
    "retract_plain, unified",
)


@pytest.mark.parametrize("name", NAMES)
def test_what_ends_in_the_tree_is_proved(tmp_path: Path, name: str) -> None:
    assert claim_checked(write_unified(tmp_path), name).verdict == PROVED


WRONG = {
    "the input grows by the output": ("refresh, tokens to fill", "if is_shared or there < 0", "if there < 0"),
    "tokens stay that are no longer there": ("refresh, tokens to fill", " or there > len(self.output_ids)", ""),
    "the output is added twice": ("refresh, tokens to fill", "self.output_ids[there:]", "self.output_ids"),
    "an aborted turn's marker stays": ("abort_first, released", "        req.session.abort_req()\n", ""),
    "the slot of an aborted turn stays": (
        "abort_nth, released",
        "        del self.slots[req.session.session_id]\n",
        "",
    ),
    "an aborted turn goes into the tree twice": (
        "abort_nth, another namespace",
        "        if req.extra_key != slot.extra_key or req.cache_salt != slot.cache_salt:\n",
        "        if False:\n",
    ),
    "an aborted turn with another salt goes into the tree": (
        "abort_nth, another namespace",
        " or req.cache_salt != slot.cache_salt",
        "",
    ),
    "an aborted turn with another extra_key goes into the tree": (
        "abort_nth, another namespace",
        "req.extra_key != slot.extra_key or ",
        "",
    ),
    "the tree owns less than it has": (
        "finish_plain, unified",
        "        req.kv.cache_protected_len = len(owned)\n",
        "",
    ),
    "copies are freed from the begin": (
        "finish_plain, unified",
        "InsertParams(prev_prefix_len=req.kv.cache_protected_len)",
        "InsertParams(prev_prefix_len=0)",
    ),
    "the lock is not undone": ("finish_plain, unified", "        self.unlock(req.lock)\n", ""),
    "the insert is not told of the window": (
        "finish_plain, unified",
        "        params.component_evicted_seqlens[SWA] = req.kv.component_evicted_seqlens.get(SWA, 0)\n",
        "",
    ),
    "more goes into the tree than up to where the prompt parts": (
        "finish_plain, unified",
        "        if req.swa_branching_seqlen is None:\n",
        "        if True:\n",
    ),
    "a retracted request goes into the tree": ("retract_plain, unified", "checkpoint=False", "checkpoint=True"),
}


@pytest.mark.parametrize(("name", "right", "wrong"), WRONG.values(), ids=WRONG)
def test_a_wrong_line_differs(tmp_path: Path, name: str, right: str, wrong: str) -> None:
    assert claim_checked(write_unified(tmp_path, right, wrong), name, to_the_first_difference=True).verdict == DIFFERS
