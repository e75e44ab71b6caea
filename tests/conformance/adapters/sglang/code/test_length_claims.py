"""Each wrong line of what a request says of its own lengths is seen, and the right ones are proved."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_release import write_release

from kvproof.conformance.adapters.sglang.code.claims import release_of
from kvproof.conformance.adapters.sglang.code.functions import GIVEN, LIBRARIES
from kvproof.conformance.adapters.sglang.code.length_claims import lengths
from kvproof.model.code.claims import DIFFERS, PROVED, Claim, check
from kvproof.model.code.source import Folder, Sources
from kvproof.spec.actions import ACTIONS

NAMES = (
    "retract, lengths",
    "match_tree, longest",
    "check, a record's row",
    "finish, committed KV",
    "finish, KV behind it",
)


def claims_in(sources: Sources) -> dict[str, Claim]:
    release = release_of(sources, ACTIONS)
    assert release is not None
    return {claim.name: claim for claim in lengths(release)}


def test_a_function_that_a_release_lacks_is_not_claimed(tmp_path: Path) -> None:
    folder = write_release(tmp_path, "def pop_committed_kv_cache", "def another_name")

    assert set(claims_in(Sources(Folder(folder)))) == set(NAMES) - {"finish, committed KV"}


@pytest.mark.parametrize("name", NAMES)
def test_a_right_function_is_proved(tmp_path: Path, name: str) -> None:
    sources = Sources(Folder(write_release(tmp_path)))

    assert check(claims_in(sources)[name], sources, LIBRARIES, GIVEN).verdict == PROVED


WRONG = {
    "the committed length stays": ("retract, lengths", "        self.kv.kv_committed_len = 0\n", ""),
    "the protected length stays": ("retract, lengths", "        self.kv.cache_protected_len = 0\n", ""),
    "all tokens may match": ("match_tree, longest", "longest = input_len - 1", "longest = input_len"),
    "a match goes behind the first logprob": (
        "match_tree, longest",
        "min(longest, self.logprob_start_len)",
        "max(longest, self.logprob_start_len)",
    ),
    "logprobs are not asked": ("match_tree, longest", "if self.return_logprob and", "if"),
    "a record without a row holds one": (
        "check, a record's row",
        "return self.req_pool_idx is not None",
        "return True",
    ),
    "it is handed over again and again": ("finish, committed KV", "        self.kv_committed_freed = True\n", ""),
    "what is allocated is handed over as committed": (
        "finish, committed KV",
        "        return self.kv.kv_committed_len\n",
        "        return self.kv.kv_allocated_len\n",
    ),
    "nothing is behind it": (
        "finish, KV behind it",
        "return self.kv.kv_committed_len, self.kv.kv_allocated_len",
        "return self.kv.kv_committed_len, self.kv.kv_committed_len",
    ),
    "the tree's part is handed over twice": (
        "finish, KV behind it",
        "return self.kv.kv_committed_len, self.kv.kv_allocated_len",
        "return self.kv.cache_protected_len, self.kv.kv_allocated_len",
    ),
}


@pytest.mark.parametrize(("name", "right", "wrong"), WRONG.values(), ids=WRONG)
def test_a_wrong_line_differs(tmp_path: Path, name: str, right: str, wrong: str) -> None:
    sources = Sources(Folder(write_release(tmp_path, right, wrong)))

    assert check(claims_in(sources)[name], sources, LIBRARIES, GIVEN).verdict == DIFFERS
