"""Each wrong line of what keeps a chunk of an ordinary request is seen, and the right one is proved."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_release import write_release
from small_unified import write_unified

from kvproof.conformance.adapters.sglang.code.claims import release_of
from kvproof.conformance.adapters.sglang.code.functions import GIVEN, LIBRARIES
from kvproof.conformance.adapters.sglang.code.insert_claims import inserts
from kvproof.model.code.claims import DIFFERS, PROVED, Claim, Verdict, check
from kvproof.model.code.source import Folder, Sources
from kvproof.spec.actions import ACTIONS
from kvproof.spec.profiles import PROFILES

NAMES = ("insert, radix", "stash, chunk")


def claims_in(sources: Sources) -> dict[str, Claim]:
    owned = sources.module("sglang.srt.mem_cache.unified_radix_cache") is not None
    release = release_of(sources, PROFILES["sglang-0.5.23"].actions if owned else ACTIONS)
    assert release is not None
    return {claim.name: claim for claim in inserts(release)}


def checked(sglang: Path, name: str) -> Verdict:
    sources = Sources(Folder(sglang))
    return check(claims_in(sources)[name], sources, LIBRARIES, GIVEN)


def test_each_cache_that_is_there_is_claimed(tmp_path: Path) -> None:
    assert tuple(claims_in(Sources(Folder(write_release(tmp_path / "plain"))))) == NAMES
    assert tuple(claims_in(Sources(Folder(write_unified(tmp_path / "unified"))))) == ("insert, unified",)


@pytest.mark.parametrize("name", NAMES)
def test_a_right_cache_is_proved(tmp_path: Path, name: str) -> None:
    assert checked(write_release(tmp_path), name).verdict == PROVED


WRONG = {
    "copies are counted from the prefix": ("insert, radix", "begin = req.kv.cache_protected_len", "begin = 0"),
    "copies are not freed": ("insert, radix", "        self.token_to_kv_pool_allocator.free(row[begin:had])\n", ""),
    "the row still names the copies": (
        "insert, radix",
        "slice(begin, len(indices))), indices[begin:])",
        "slice(had, len(indices))), indices[had:])",
    ),
    "the tree's part stays": ("insert, radix", "        req.kv.cache_protected_len = len(indices)\n", ""),
    "the lock is taken once more": (
        "insert, radix",
        "        self.dec_lock_ref(req.last_node)\n        self.inc_lock_ref",
        "        self.inc_lock_ref",
    ),
    "the chunk ends with its last whole page": (
        "insert, radix",
        "torch.cat([indices, row[len(indices) :]])",
        "indices",
    ),
    "the chunk is not kept whole": ("stash, chunk", ": len(req.fill_ids)].clone()", ": len(req.fill_ids) - 1].clone()"),
    "the chunk is kept without its begin": (
        "stash, chunk",
        ": len(req.fill_ids)].clone()",
        "1 : len(req.fill_ids)].clone()",
    ),
}


@pytest.mark.parametrize(("name", "right", "wrong"), WRONG.values(), ids=WRONG)
def test_a_wrong_line_differs(tmp_path: Path, name: str, right: str, wrong: str) -> None:
    assert checked(write_release(tmp_path, right, wrong), name).verdict == DIFFERS


def test_a_chunk_whose_copy_of_the_row_stays_as_it_was_is_never_a_pass(tmp_path: Path) -> None:
    stays = write_release(tmp_path, "req.prefix_indices = torch.cat(", "_ = torch.cat(")

    assert checked(stays, "insert, radix").verdict != PROVED


def test_a_chunk_goes_into_the_tree_of_the_cache_that_owns_the_sessions(tmp_path: Path) -> None:
    owns = "        req.kv.cache_protected_len = len(owned)\n"

    assert checked(write_unified(tmp_path / "right"), "insert, unified").verdict == PROVED
    assert checked(write_unified(tmp_path / "wrong", owns, ""), "insert, unified").verdict == DIFFERS
