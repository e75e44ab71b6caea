"""The sliding-window pool of real releases, page by page: sound runs conform, a wrong page of it is noticed and named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from drive_windows import PAGE_SIZES, SOUND
from sglang_process import RELEASES, called
from trace_events import events_of, read_records, write_records

from kvproof.conformance.adapters.live.assembly import DECODE, Assembly
from kvproof.conformance.adapters.live.page_ids import PageIds
from kvproof.conformance.adapters.row_pages import WindowPool
from kvproof.conformance.adapters.scheduler_actions import SchedulerAction
from kvproof.conformance.adapters.sglang import capture
from kvproof.conformance.adapters.sglang.page_moves import PageMoves
from kvproof.conformance.adapters.sglang.releases import release_of
from kvproof.conformance.adapters.sglang.seams import SEAMS
from kvproof.conformance.adapters.sglang.window_pool import window_allocator
from kvproof.conformance.replay.replay import CONFORMS, VIOLATES, Report, replay

OLD, NEW = RELEASES
TraceOf = Callable[[str, str, int], Any]


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces of `drive_windows.py` on the release after the seed fixes."""
    folder = tmp_path_factory.mktemp("windows")
    called(NEW, "drive_windows:runs", folder)
    return folder


@pytest.mark.sglang
@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("scenario", SOUND)
def test_sound_runs_conform_with_their_windows_followed(driven: Path, scenario: str, page_size: int) -> None:
    path = driven / f"{scenario}-p{page_size}.jsonl"
    report = replay(path)
    assert report.verdict == CONFORMS
    assert report.config.window_pages > 0 and not any("window" in gap for gap in report.gaps)
    taken = sum(len(event.window_alloc) for event in events_of(path, "extend", "decode"))
    assert taken == sum(len(event.alloc) for event in events_of(path, "extend", "decode")) > 0
    assert any(event.window_free_list for event in events_of(path, "check"))


@pytest.mark.sglang
def test_sound_runs_bring_about_what_frees_window_pages(driven: Path) -> None:
    """They leave the window, go with the page that names them, and are evicted alone."""
    assert any(event.window_free for event in events_of(driven / "matrix-window-p4.jsonl", "window"))
    assert any(event.window_free for event in events_of(driven / "matrix-window-p4.jsonl", "finish"))
    evicted = events_of(driven / "pressure-p1.jsonl", "evict")
    assert any(event.window_free and not event.free for event in evicted)
    assert any(event.window_free and event.free for event in evicted)


@pytest.mark.sglang
@pytest.mark.parametrize(
    ("action", "name"),
    [
        ("extend", "pressure-p1"),
        ("decode", "pressure-p1"),
        ("evict", "pressure-p1"),
        ("window", "matrix-window-p4"),
        ("finish", "matrix-window-p4"),
    ],
)
def test_a_wrong_window_page_in_any_event_is_noticed(driven: Path, tmp_path: Path, action: str, name: str) -> None:
    """The recorder writes another page than the map names, once: the replay says where it came out."""
    sound = driven / f"{name}.jsonl"
    events = read_records(sound)
    key = "window_alloc" if action in ("extend", "decode") else "window_free"
    event = next(event for event in events if event.get("action") == action and event.get(key))
    event[key][-1] = event[key][-1] % replay(sound).config.window_pages + 1
    report = replay(write_records(tmp_path / "spoilt.jsonl", events))
    assert report.verdict == VIOLATES and report.first is not None
    assert report.first.event.seq >= event["seq"]
    assert any("window page" in line for line in report.first.pages) or said_of(report) & {"freed window pages"}


@pytest.mark.sglang
def test_a_window_page_that_the_allocator_keeps_back_is_named(driven: Path) -> None:
    report = replay(driven / "keeps_one_back.jsonl")
    assert report.verdict == VIOLATES and report.first is not None and report.first.event.action == "check"
    assert [line.split(" is in no free list")[0].split()[:2] for line in report.first.pages] == [["window", "page"]]
    assert "window available" in said_of(report)


@pytest.mark.sglang
def test_a_window_page_that_is_free_twice_is_named_and_so_is_the_row_that_gets_it(driven: Path) -> None:
    report = replay(driven / "gives_the_same_twice.jsonl")
    assert report.verdict == VIOLATES and report.first is not None
    assert any(" is in the free list and owned by page" in line for line in report.first.pages)
    handed_out = [line for finding in report.findings for line in finding.pages if "was handed out while" in line]
    assert handed_out and handed_out[0].startswith("window page")


@pytest.mark.sglang
@pytest.mark.parametrize("page_size", [1, 4])
def test_a_window_that_is_cut_too_far_is_judged_by_page(trace_of: TraceOf, page_size: int) -> None:
    """0.5.10.post1 frees up to the window, where the rule keeps a page more."""
    first = replay(trace_of(OLD, "matrix-window", page_size).path).first
    assert first is not None and first.event.action == "window"
    (freed,) = [difference for difference in first.differences if difference.name == "freed window pages"]
    assert isinstance(freed.seen, list) and isinstance(freed.expected, list)
    (too_many,) = set(freed.seen) - set(freed.expected)
    assert first.pages == (f"window page {too_many} was freed; it was behind page {too_many} of session s1",)


def said_of(report: Report) -> set[str]:
    return {difference.name for difference in report.first.differences} if report.first is not None else set()


# -- without SGLang --


def scheduler_with(**allocator: Any) -> Any:
    of_both = {"full_attn_allocator": object(), "swa_attn_allocator": object(), "full_to_swa_index_mapping": [0]}
    return SimpleNamespace(token_to_kv_pool_allocator=SimpleNamespace(**{**of_both, **allocator}))


def test_window_pages_are_named_only_where_a_map_names_them() -> None:
    found = {seam.name: seam.ways[0] for seam in SEAMS}
    release, one_pool = release_of("9.9.9", found), object()
    assert window_allocator(release, scheduler_with()) is not None
    assert window_allocator(release, scheduler_with(full_attn_allocator=one_pool, swa_attn_allocator=one_pool)) is None
    assert window_allocator(release, scheduler_with(swa_req_ring=True)) is None
    assert window_allocator(release, scheduler_with(full_to_swa_index_mapping=None)) is None
    assert window_allocator(release_of("9.9.9", {**found, "window_map": None}), scheduler_with()) is None
    assert window_allocator(release, SimpleNamespace(token_to_kv_pool_allocator=object())) is None


def test_free_pages_are_listed_if_the_larger_pool_is_small_enough() -> None:
    def is_listed(full: int, window: int) -> bool:
        pools = {"full_attn_allocator": SimpleNamespace(size=full), "size": min(full, window)}
        scheduler = SimpleNamespace(page_size=4, token_to_kv_pool_allocator=SimpleNamespace(**pools))
        return capture._lists_free_pages(scheduler)

    assert is_listed(4 * capture.LISTED_PAGES, 4)
    assert not is_listed(4 * capture.LISTED_PAGES + 4, 4)


def test_pages_come_from_the_map_and_those_that_left_the_window_have_none() -> None:
    pool = WindowPool(
        SimpleNamespace(page_size=4),
        torch.tensor([0, 0, 0, 0, 8, 9, 0, 0, 12, 13, -1]),
        PageIds(4, device_is_host=True),
    )
    freed: list[int] = []
    pool.go_back(torch.tensor([4, 5, 6, 7, 8, 9]), freed)
    assert freed == [2, 3]
    assert pool.behind(torch.tensor([4, 6, 8])) == [2, 0, 3]


class Collecting:
    """An allocator within a free group, which looks into the map of the window's pages only when the group ends."""

    page_size = 2
    is_not_in_free_group = False

    def __init__(self) -> None:
        self.free_group: list[Any] = []

    def free_group_end(self) -> None:
        pass


@pytest.mark.parametrize("names", [("free_swa", "free"), ("free", "free_swa")])
def test_an_index_in_both_lists_of_a_free_group_gives_its_window_page_back_once(names: tuple[str, str]) -> None:
    allocator, page_ids = Collecting(), PageIds(2, device_is_host=True)
    observe: Any = SimpleNamespace(page_ids=page_ids, window_pool=WindowPool(allocator, torch.arange(12), page_ids))
    actions: Any = SimpleNamespace(innermost=SchedulerAction("insert"))
    moves = PageMoves(SimpleNamespace(page_size=2, token_to_kv_pool_allocator=allocator), observe, actions)

    def handed_in(name: str, *indices: int) -> list[int]:
        freed = actions.innermost.window_free
        freed.clear()
        moves.free(name, lambda *_: None, allocator, torch.tensor(indices))
        return list(freed)

    assert handed_in(names[0], 2, 3) == [1]
    assert handed_in(names[1], 2, 3, 4, 5) == [2]
    assert handed_in(names[1], 4, 5) == [2], "twice in one list is freed twice"
    allocator.free_group = []
    assert handed_in(names[1], 2, 3) == [1], "the map of another group"


def test_a_decode_step_names_the_window_page_of_each_page_that_it_opens() -> None:
    lengths = [(5, 5, 4), (6, 6, 4)]
    step = (DECODE, 1, ["a", "b"], [1, 2], lengths, [1, 2], None, ([5, 6], [7, 8], [3, 4]), None)
    opened, within = Assembly(4).events(step)
    assert (opened["alloc"], opened["window_alloc"]) == ([7], [3])
    assert "alloc" not in within and "window_alloc" not in within
