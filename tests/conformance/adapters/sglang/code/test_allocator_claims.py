"""Each wrong line of an allocator is seen, and the right one is proved."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_batch import write_batch

from kvproof.conformance.adapters.sglang.code.allocator_claims import allocators
from kvproof.conformance.adapters.sglang.code.claims import release_of
from kvproof.conformance.adapters.sglang.code.functions import GIVEN, LIBRARIES
from kvproof.model.code.claims import DIFFERS, PROVED, Claim, Verdict, check
from kvproof.model.code.source import Folder, Sources
from kvproof.spec.actions import ACTIONS

NAMES = ("free", "free, single slots", "free, a segment", "extend, pages", "decode, pages")
FREE, SINGLE, SEGMENT, EXTEND, DECODE = NAMES


def claims(sglang: Path) -> tuple[Sources, dict[str, Claim]]:
    sources = Sources(Folder(sglang))
    release = release_of(sources, ACTIONS)
    assert release is not None
    return sources, {claim.name: claim for claim in allocators(release)}


def checked(sglang: Path, name: str) -> Verdict:
    sources, by_name = claims(sglang)
    return check(by_name[name], sources, LIBRARIES, GIVEN)


@pytest.mark.parametrize("name", NAMES)
def test_a_right_allocator_is_proved(tmp_path: Path, name: str) -> None:
    assert checked(write_batch(tmp_path), name).verdict == PROVED


def test_every_claim_about_an_allocator_is_tested(tmp_path: Path) -> None:
    assert set(claims(write_batch(tmp_path))[1]) == set(NAMES) == {name for name, _, _ in WRONG.values()}


WRONG = {
    "a page comes back once for each token": (FREE, "torch.unique(free_index // self.page_size)", "free_index // self.page_size"),
    "pages come back twice": (
        FREE,
        "(torch.unique(free_index // self.page_size), self",
        "(torch.unique(free_index // self.page_size), torch.unique(free_index // self.page_size), self",
    ),
    "what waits for the end of a group is lost": (FREE, "self.free_group = self.free_g", "self.free_group = [] and self.free_g"),
    "sorted slots are lost": (SINGLE, "self.release_pages = torch.cat((free_index, self.release_pages))", "pass"),
    "nothing comes back": (SEGMENT, "if free_index.numel() > 0:", "if False:"),
    "the last page is not taken": (EXTEND, "after = (seq_lens + page_size - 1)", "after = seq_lens"),
    "no page is taken": (EXTEND, "self.free_pages = self.free_pages[num_new_pages:]", "pass"),
    "a page is taken one token late": (DECODE, "page_size == 1)", "page_size == 0)"),
    "a page at the seam comes back twice": (FREE, "        self.free_group = []\n", "        self.free_group = None\n"),
    "nobody sorts what waits for it": (SINGLE, "elif self.need_sort:", "elif True:"),
    "the kernel gets the lengths swapped": (EXTEND, "(prefix_lens, seq_lens, last_loc,", "(seq_lens, prefix_lens, last_loc,"),
    "a free page is skipped": (DECODE, "(seq_lens, last_loc, self.free_pages,", "(seq_lens, last_loc, self.free_pages[1:],"),
    "one page is taken for each request": (DECODE, "self.free_pages[new_pages:]", "self.free_pages[bs:]"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "right", "wrong"), WRONG.values(), ids=WRONG)
def test_a_wrong_line_differs(tmp_path: Path, name: str, right: str, wrong: str) -> None:
    assert checked(write_batch(tmp_path, right, wrong), name).verdict == DIFFERS
