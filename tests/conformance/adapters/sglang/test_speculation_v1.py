"""Rounds of speculation v1: a batch frees what it rejects in one call, and each request's event has its own share."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.conformance.adapters.scheduler_actions import SchedulerActions
from kvproof.conformance.adapters.sglang.speculation_v1 import Verifying

PAGES = {"a": [3, 4, 5], "b": [6, 7, 8]}


class Seen:
    """What the handlers read of a scheduler whose two requests take three pages each."""

    has_window = False
    page_ids = SimpleNamespace(settle=lambda wait: None)

    def new_pages(self, row: str, start: int, end: int) -> list[int]:
        assert end - start == 3
        return list(PAGES[row])

    def new_window_pages(self, row: str, start: int, end: int) -> list[int]:
        return [page + 100 for page in PAGES[row]]

    def turn(self, req: Any, *, prefix: bool) -> dict[str, int]:
        return {"output_len": len(req.output_ids)}


@pytest.mark.parametrize(
    "freed, of_a, of_b",
    [([4, 5, 8], [4, 5], [8]), ([], [], []), ([3, 4, 5, 6, 7, 8], [3, 4, 5], [6, 7, 8]), ([9, 8], [9], [8])],
)
def test_each_request_has_its_share_and_no_freed_page_is_lost(
    freed: list[int], of_a: list[int], of_b: list[int]
) -> None:
    requests = [SimpleNamespace(rid=rid, row=rid, output_ids=[1], session=None) for rid in PAGES]
    written: list[dict[str, Any]] = []
    events = SimpleNamespace(
        turn_event=lambda action, req, session, **fields: written.append({"action": action, **fields})
    )
    release = SimpleNamespace(row=lambda req: req.row, lengths=lambda reqs: [(7, 7, 0) for _ in reqs])
    actions = SchedulerActions(lambda *args, **fields: None)
    rounds = Verifying(release, Seen(), events, actions)  # type: ignore[arg-type]
    batch, drafts = SimpleNamespace(reqs=requests), SimpleNamespace(draft_token_num=3)

    def verify(worker: str, batch: Any) -> str:
        rounds.prepare(lambda drafts, batch: None, drafts, batch)
        actions.innermost.free += freed
        actions.innermost.window_free += [page + 100 for page in freed]
        requests[0].output_ids += [2, 3]
        requests[1].output_ids += [2]
        batch.reqs = []  # those that are over leave
        return f"verified by {worker}"

    assert rounds.verify(verify, "EAGLE", batch) == "verified by EAGLE"
    assert [(event["action"], event["params"], event["alloc"]) for event in written] == [
        ("verify", {"tokens": 2}, [3, 4, 5]),
        ("verify", {"tokens": 1}, [6, 7, 8]),
    ]
    assert [event["row"] for event in written] == ["a", "b"]
    assert [event["free"] for event in written] == [of_a, of_b]
    assert [event["window_free"] for event in written] == [[page + 100 for page in of] for of in (of_a, of_b)]
