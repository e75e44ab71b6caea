"""The census of pools on the device: it counts the device's own tables, and a verdict is read one step after it was taken."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kvproof.impl.census import CensusViolation, take_census
from kvproof.impl.config import EngineConfig
from kvproof.impl.device import Device
from kvproof.impl.device_census import tables_of
from kvproof.impl.page_ownership import Holdings, window_page_owners
from kvproof.impl.scheduler import Scheduler

P = 4
"""Page size."""
ROW, OTHER_ROW = 1, 2
WINDOW = 3


def running(device: str = "cpu", **settings: object) -> tuple[Scheduler, Device]:
    """Two requests that decode, with three pages of each prompt in the tree, and the census on."""
    strict = {"forward": "none", "pools": "device", "device": device, "census_every_step": True}
    scheduler = Scheduler(EngineConfig(page_size=P, pool_pages=20, **strict, **settings))  # type: ignore[arg-type]
    for number, name in enumerate("ab"):
        scheduler.submit(name, [1 + number] * 13, 40)
    for _ in range(3):
        scheduler.step()
    return scheduler, scheduler.state.device


def entry(device: Device, row: int, column: int) -> int:
    return int(device.pools.req_to_token[row, column * P]) // P


def name_page(device: Device, row: int, column: int, page: int) -> None:
    device.pools.req_to_token[row, column * P : (column + 1) * P] = page * P + torch.arange(P)


def corrupt(device: Device, kind: str) -> None:
    """On the stream, as everything that is done to the device's tables."""
    with device.stream.running():
        CORRUPTIONS[kind][0](device)


def lose_a_page(device: Device) -> None:
    """The page at the end of a row is nobody's: its column names what the other row has."""
    name_page(device, ROW, 3, entry(device, OTHER_ROW, 3))


def lose_a_free_page(device: Device) -> None:
    device.pools.free_pages.take(1)


def free_a_page_in_use(device: Device) -> None:
    device.pools.free_pages.give_back(device.pools.req_to_token[ROW, 3 * P : 3 * P + 1] // P)


def list_a_free_page_twice(device: Device) -> None:
    device.pools.free_pages.pages[1] = device.pools.free_pages.pages[0]


def build_on_foreign_pages(device: Device) -> None:
    name_page(device, ROW, 0, int(device.pools.free_pages.pages[-1]))


CORRUPTIONS: dict[str, tuple[Callable[[Device], None], str]] = {
    "TWO_OWNERS": (lose_a_page, r"page \d+ has 2 owners: request a and request b"),
    "NO_OWNER": (lose_a_free_page, r"page \d+ has no owner"),
    "FREE_AND_REFERENCED": (free_a_page_in_use, r"page \d+ is free and in use: the free list and request a"),
    "DUPLICATE_FREE": (list_a_free_page_twice, r"page \d+ is 2 times in the free list"),
    "FOREIGN_PREFIX": (
        build_on_foreign_pages,
        r"request a builds on 1 leading page that the tree does not own: page \d+",
    ),
    "PAGE_ZERO": (lambda device: name_page(device, ROW, 3, 0), r"page 0 is padding, but request a has it"),
    "OUT_OF_RANGE": (
        lambda device: name_page(device, ROW, 3, 21),
        r"page id 21 is out of range, the pool has pages 1 to 20",
    ),
}


@pytest.mark.parametrize("kind", CORRUPTIONS)
@pytest.mark.parametrize("is_last", [False, True])
def test_each_violation_of_the_device_alone_is_seen_one_step_later_or_at_the_end(kind: str, is_last: bool) -> None:
    scheduler, device = running()
    corrupt(device, kind)
    take_census(scheduler.state)  # the books know nothing of it
    scheduler.step()
    with pytest.raises(CensusViolation, match=rf"^step 4: .*{CORRUPTIONS[kind][1]}"):
        (scheduler.census.settle if is_last else scheduler.step)()
    assert scheduler.state.reporter.step == (4 if is_last else 5)


def test_a_healthy_run_has_nothing_to_settle() -> None:
    scheduler, _ = running()
    scheduler.step()
    scheduler.census.settle()
    assert (scheduler.state.reporter.step, len(scheduler.state.running)) == (4, 2)


def test_holders_are_called_as_they_were_in_the_step_of_the_violation() -> None:
    """In the next step request a is over, and its name is somebody else's number."""
    scheduler, device = running()
    lose_a_page(device)
    scheduler.step()
    scheduler.state.running.pop(0)
    with pytest.raises(CensusViolation, match=r"^step 4: page \d+ has 2 owners: request a and request b"):
        scheduler.step()


def test_what_the_books_tell_is_told_at_once_with_what_the_device_has_to_say() -> None:
    scheduler, device = running()
    lose_a_free_page(device)
    scheduler.state.rows.alloc()
    with pytest.raises(CensusViolation, match=r"^step 4: page \d+ has no owner; row 3 has 0 users$"):
        scheduler.step()


def test_the_step_that_was_wrong_first_is_told_first() -> None:
    scheduler, device = running()
    lose_a_free_page(device)
    scheduler.step()
    scheduler.state.rows.alloc()
    with pytest.raises(CensusViolation, match=r"^step 4: page \d+ has no owner$"):
        scheduler.step()


class TestWindow:
    def running(self) -> tuple[Scheduler, Device]:
        return running(window=WINDOW, window_pages=12)

    def lose_a_page(self, device: Device) -> None:
        full_to_window = device.pools.full_to_window
        full_to_window[entry(device, ROW, 3)] = full_to_window[entry(device, OTHER_ROW, 3)]

    @pytest.mark.parametrize(
        ("hurt", "said"),
        [
            (lose_a_page, r"window pool: page \d+ has 2 owners: request a and request b"),
            (lambda _, device: device.pools.window_free_pages.take(1), r"window pool: page \d+ has no owner"),
            (
                lambda _, device: name_page(device, ROW, 3, 4000),  # no pool has it
                "page id 4000 is out of range.*window pool: page id -1 is out of range",
            ),
        ],
    )
    def test_what_the_map_or_a_list_loses_is_seen(self, hurt: Callable[..., object], said: str) -> None:
        scheduler, device = self.running()
        hurt(self, device)
        take_census(scheduler.state)
        scheduler.step()
        with pytest.raises(CensusViolation, match=rf"^step 4: .*{said}"):
            scheduler.step()

    def test_the_translated_table_names_page_0_where_there_is_no_window_page(self) -> None:
        scheduler, device = self.running()
        pool = scheduler.state.window_pool
        device.pools.full_to_window[entry(device, ROW, 1)] = 0
        owners = window_page_owners(pool, Holdings.of(scheduler.state), tables_of(device))
        pages = [entry(device, ROW, column) for column in range(4)]
        translated = owners.req_to_token[ROW, :4].tolist()
        assert translated == [int(device.pools.full_to_window[page]) for page in pages]
        assert translated[1] == 0 and all(translated[2:])
        assert owners.page_size == 1
