"""Steps of which only what changes is read say what they would say in full: whatever a batch does, the events are the same."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvproof.conformance.adapters.live.assembly import DECODE, RESULT, Assembly, events_of
from kvproof.conformance.adapters.live.lines import Lines
from kvproof.conformance.adapters.sglang.event_records import EventRecords
from kvproof.conformance.adapters.sglang.seams import SEAMS
from kvproof.conformance.adapters.sglang.steps import PageOpenings, Steps
from kvproof.conformance.traces.records import event_line

[lengths] = [way.value for seam in SEAMS if seam.name == "lengths" for way in seam.ways if way.name == "its own"]


class Tensor(list[int]):
    """As much of a tensor as the recorder touches."""

    reads = 0

    def tolist(self) -> list[int]:
        Tensor.reads += 1
        return list(self)


@dataclass(eq=False)
class Req:
    rid: str
    row: int
    kv_committed_len: int
    cache_protected_len: int = 0
    output_ids: list[int] = field(default_factory=lambda: [7])

    @property
    def kv_allocated_len(self) -> int:
        return self.kv_committed_len


class Server:
    """A batch that decodes, and a recorder of it."""

    def __init__(self, page_size: int, *, in_full: bool) -> None:
        self.page_size, self.in_full, self.page = page_size, in_full, 0
        self.reqs: list[Req] = []
        self.records: list[Any] = []
        observe: Any = SimpleNamespace(
            page_size=page_size,
            pages_of=lambda indices: [index // page_size for index in indices.tolist()],
            window_pages_of=lambda indices: None,
            sessions_of=lambda reqs: [("s", (False,) * 8) if req.row % 2 else None for req in reqs],
        )
        release: Any = SimpleNamespace(lengths=lengths, row=lambda req: req.row)
        self.event_records = EventRecords(observe, self.records.append, lambda: self.page)
        self.steps = Steps(release, observe, self.event_records)

    def decode(self) -> None:
        for req in self.reqs:
            req.kv_committed_len += 1
        self.page += 1
        if self.in_full:
            self.steps._reqs = None
        lens = Tensor(req.kv_committed_len for req in self.reqs)
        locations = Tensor(
            (100 * self.page + place) * self.page_size + (length - 1) % self.page_size
            for place, length in enumerate(lens)
        )
        batch = SimpleNamespace(reqs=self.reqs, seq_lens_cpu=lens, out_cache_loc=locations)
        self.steps.prepared_for_decode(batch)

    def result(self, reqs: list[Req], finished: Req | None) -> None:
        """Those that have finished gain nothing: with overlap they are in one more batch."""
        if self.in_full:
            self.steps._reqs = None
        self.steps.results_come(None, SimpleNamespace(reqs=reqs))
        for req in reqs:
            if req in self.reqs:
                req.output_ids.append(7)
            if req is finished:
                self.steps.write_results_up_to(req)
                self.event_records.event("finish", turn=req.rid)
        self.steps.results_came(None, None)
        self.reqs = [req for req in self.reqs if req is not finished] if finished is not None else self.reqs

    def events(self) -> list[dict[str, Any]]:
        assembly = Assembly(self.page_size)
        events = [event for record in self.records for event in assembly.events(record)]
        return [{key: value for key, value in event.items() if key != "step"} for event in events]

    def kinds(self) -> list[str]:
        return [record[0] for record in self.records if isinstance(record, tuple)]


def drive(server: Server, seed: int, *, overlap: bool) -> None:
    dice, number = random.Random(seed), 0
    in_flight: list[Req] = []
    for _ in range(120):
        if len(server.reqs) < 2 or (len(server.reqs) < 5 and dice.random() < 0.05):
            number += 1
            server.reqs = [*server.reqs, Req(f"r{number}", number, dice.randrange(1, 40))]
            server.event_records.event("extend", turn=f"r{number}")
        if dice.random() < 0.05:
            server.event_records.event("open", session=f"s{number}")
        if dice.random() < 0.03:
            dice.shuffle(server.reqs)  # no release does so, and the list stays the same object
        server.decode()
        prepared = list(server.reqs) if overlap or dice.random() < 0.5 else server.reqs
        reqs, in_flight = (in_flight, prepared) if overlap else (prepared, [])
        server.result(reqs, dice.choice(server.reqs) if dice.random() < 0.05 else None)


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("seed", range(4))
def test_a_batch_of_which_only_changes_are_read_has_the_events_of_one_read_in_full(
    page_size: int, seed: int, overlap: bool
) -> None:
    short, full = Server(page_size, in_full=False), Server(page_size, in_full=True)
    for server in (short, full):
        drive(server, seed, overlap=overlap)
    assert short.events() == full.events()
    assert set(full.kinds()) == set(short.kinds()) == {DECODE, RESULT}
    decodes = [record for record in short.records if isinstance(record, tuple) and record[0] == DECODE]
    again = [later for earlier, later in itertools.pairwise(decodes) if later[2] is earlier[2]]
    assert len(again) > len(decodes) // 4, "the same batch is not read again"
    assert sum(map(events_of, short.records)) == len(short.events())


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("seed", range(4))
def test_the_lines_of_batches_are_those_of_their_events(page_size: int, seed: int) -> None:
    server = Server(page_size, in_full=False)
    drive(server, seed, overlap=seed % 2 == 0)
    assembly = Assembly(page_size)
    events = [event for record in server.records for event in assembly.events(record)]
    lines = Lines(page_size).of(server.records)
    assert lines == [event_line(seq, event) + b"\n" for seq, event in enumerate(events)]


@given(st.text(st.characters(exclude_categories=["Cs"])).filter(lambda name: name != "b"))
def test_a_turn_may_be_named_as_it_likes(name: str) -> None:
    assembly, turns, rows = Assembly(4), [name, "b"], [1, 2]
    records: list[Any] = [
        (DECODE, 1, turns, rows, [(5, 5, 0), (6, 6, 0)], [1, 2], [("s", (False,) * 8), None], None, None),
        (RESULT, 2, turns, [1, 2], [2, 2]),
        (DECODE, 2, turns, rows, [(6, 6, 0), (7, 7, 0)], [2, 2], None, None, None),
        (RESULT, 3, turns, [2, 2], [3, 3]),
        (DECODE, 3, turns, rows, [(7, 7, 0), (8, 8, 0)], [3, 3], None, ([9, 8], [11, 12], None), None),
        (DECODE, 4, turns, rows, [(8, 8, 0), (9, 9, 0)], [3, 3], None, (None, [11, 12], [21, 22]), None),
    ]
    events = [event for record in records for event in assembly.events(record)]
    assert Lines(4).of(records) == [event_line(seq, event) + b"\n" for seq, event in enumerate(events)]
    assert [event["turn"] for event in events] == [name, "b", name, name, "b", name, "b", name, "b", name, "b"]


def test_while_a_batch_only_decodes_tensors_are_read_where_a_page_begins() -> None:
    server = Server(16, in_full=False)
    server.reqs = [Req("a", 1, 16), Req("b", 2, 20)]
    server.event_records.event("extend", turn="a")
    server.decode()
    before = Tensor.reads
    for _ in range(11):
        server.decode()
    assert Tensor.reads == before
    server.decode()  # b's 33rd token
    assert Tensor.reads == before + 2
    [a, b] = [event for event in server.events() if event["action"] == DECODE][-2:]
    assert "alloc" not in a and b["alloc"] == [1301]


def test_a_batch_that_does_not_grow_by_one_is_an_error() -> None:
    """Else pages would be missed, or named that were not opened."""
    openings = PageOpenings(4)
    assert not openings.at([3, 2])
    assert openings.steps_to_next == 2
    openings.after(Tensor([5, 4]))
    assert openings.seq_lens == [5, 4]
    with pytest.raises(RuntimeError, match="pages may have been missed"):
        openings.after(Tensor([10, 5]))


def test_steps_that_open_a_page() -> None:
    openings = PageOpenings(4)
    assert openings.at([5, 3]) and openings.steps_to_next == 2
    assert openings.at([1]) and openings.steps_to_next == 4
    assert not openings.at([]) and openings.steps_to_next == 4
    each = PageOpenings(1)
    assert each.at([9]) and each.steps_to_next == 1
    each.after(Tensor([10]))
    assert each.seq_lens is None and each.steps_to_next == 1
