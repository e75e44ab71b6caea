"""What can go on and stands still is a violation, by either checker; what has no room, or waited for less, is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.replay.liveness import SPARE
from kvproof.conformance.replay.replay import CONFORMS, INCOMPLETE, VIOLATES, Finding, Report, replay
from kvproof.conformance.replay.replayer import STANDSTILL
from kvproof.conformance.traces.open_trace import write_trace
from kvproof.spec.patience import Patience
from kvproof.spec.trace import STOPPED, Config, Header, Producer

pytest.importorskip("numba")

Events = Iterator[dict[str, Any]]
ROW_WIDTH = 200
CONFIG = Config(page_size=1, pool_pages=1000, rows=4, row_width=ROW_WIDTH, tree=False)
OVERLAPPING = CONFIG.model_copy(update={"overlap": True})
"""Only there a turn may be retracted before the result of its prefill is in."""
MANY = Patience().turns
TWO_ROWS = 2 * ROW_WIDTH + SPARE
WINDOW = 8


def judged(path: Path, events: Events, config: Config = CONFIG) -> Report:
    header = Header(spec="1", producer=Producer(name="test", version="1", target="test"), config=config)
    with write_trace(path, header) as writer:
        for event in events:
            writer.event(**event)
        writer.close(STOPPED)
    report = replay(path, checker=Chosen("interpreted"))
    assert replay(path, checker=Chosen("compiled")) == report
    return report


def standing(path: Path, events: Events, config: Config = CONFIG) -> Finding:
    report = judged(path, events, config)
    assert report.verdict == VIOLATES
    assert report.first is not None and report.first.action == STANDSTILL
    return report.first


def arrives(turn: str, tokens: int = 3) -> Events:
    yield {"action": "arrive", "step": 0, "turn": turn, "params": {"origin_len": tokens}}
    yield {"action": "match", "step": 0, "turn": turn, "params": {"fill_len": tokens}, "after": {"prefix_len": 0}}


def admitted(turn: str, row: int, tokens: int = 3, step: int = 0) -> Events:
    yield from arrives(turn, tokens)
    pages = tuple(page_of(row, at) for at in range(tokens))
    after = {"kv_committed_len": tokens, "kv_allocated_len": tokens, "cache_protected_len": 0}
    params = {"seq_len": tokens, "last": True}
    yield {"action": "extend", "step": step, "turn": turn, "row": row, "params": params, "alloc": pages, "after": after}
    yield {"action": "result", "step": step, "turn": turn, "params": {"tokens": 1}, "after": {"output_len": 1}}


def decoded(turn: str, row: int, step: int, tokens: int = 3, admitted_in: int = 0) -> Events:
    """The decode of a step, one a token."""
    outputs = step - admitted_in
    length = tokens + outputs
    after = {"kv_committed_len": length, "kv_allocated_len": length, "cache_protected_len": 0}
    page = (page_of(row, length - 1),)
    yield {"action": "decode", "step": step, "turn": turn, "row": row, "alloc": page, "after": after}
    yield {
        "action": "result",
        "step": step,
        "turn": turn,
        "params": {"tokens": 1},
        "after": {"output_len": outputs + 1},
    }


def page_of(row: int, at: int) -> int:
    return 1 + row * ROW_WIDTH + at


def a_turn_is_kept_out(steps: int) -> Events:
    yield from admitted("a", 0)
    yield from arrives("b")
    for step in range(1, steps + 1):
        yield from decoded("a", 0, step)


def test_a_turn_that_waits_while_there_is_room_is_found(tmp_path: Path) -> None:
    finding = standing(tmp_path / "t.jsonl", a_turn_is_kept_out(MANY + 5))
    assert finding.event.step == MANY
    assert finding.rule == f"a matched turn runs: after {MANY} passes of the scheduler it stands where it stood"
    assert finding.pages == (
        "b waits in the queue: the 3 more pages for its 3 tokens could be had, and a row",
        f"pages, of 1000: {1000 - 3 - MANY} free; 0 of the tree and not locked; 0 locked; request a {3 + MANY}",
        "rows, of 4: 1 held, by request a",
    )
    assert list(finding.invariants) == ["I18"]


@pytest.mark.parametrize(
    "config",
    [
        CONFIG.model_copy(update={"rows": 1}),
        CONFIG.model_copy(update={"pool_pages": TWO_ROWS - 1}),
    ],
    ids=["no row", "too few pages"],
)
def test_one_without_room_is_none(config: Config, tmp_path: Path) -> None:
    assert judged(tmp_path / "t.jsonl", a_turn_is_kept_out(2 * MANY), config).findings == []


def test_one_is_found_if_both_could_grow_to_whole_rows(tmp_path: Path) -> None:
    just_enough = CONFIG.model_copy(update={"pool_pages": TWO_ROWS})
    assert standing(tmp_path / "t.jsonl", a_turn_is_kept_out(2 * MANY), just_enough).ledger == "request b"


def a_turn_is_kept_out_while_the_window_moves(steps: int) -> Events:
    for event in a_turn_is_kept_out(steps):
        yield {**event, "window_alloc": event["alloc"]} if "alloc" in event else event
        if event["action"] == "decode" and event["step"] % WINDOW == 0:
            length, behind = event["step"] + 3, event["step"] + 2 - WINDOW
            of = {"step": event["step"], "turn": event["turn"], "row": event["row"], "params": {"pre_len": length}}
            gone = tuple(page_of(event["row"], at) for at in range(max(0, behind - WINDOW), behind))
            yield {"action": "window", **of, "window_free": gone}


@pytest.mark.parametrize(("window_pages", "is_found"), [(TWO_ROWS, True), (TWO_ROWS - 1, False)])
def test_while_windows_move_it_is_found_if_as_many_rows_would_fit_with_all_their_windows(
    window_pages: int, is_found: bool, tmp_path: Path
) -> None:
    """How many window pages there were meanwhile is not counted: there were as many as if no window had moved."""
    windows = CONFIG.model_copy(update={"window": WINDOW, "window_pages": window_pages})
    events = a_turn_is_kept_out_while_the_window_moves(2 * MANY)
    report = judged(tmp_path / "t.jsonl", events, windows)
    assert [finding.action for finding in report.findings] == ([STANDSTILL] if is_found else [])
    if is_found:
        assert report.first is not None and report.first.ledger == "request b"


def test_where_the_pages_of_a_window_pool_are_not_named_it_is_not_known_who_has_room(tmp_path: Path) -> None:
    unnamed = CONFIG.model_copy(update={"window": WINDOW})
    report = judged(tmp_path / "t.jsonl", iter([*arrives("b"), idle(MANY)]), unnamed)
    assert report.findings == [] and "the scheduler finds nothing to run, and request b waits" in report.why
    assert judged(tmp_path / "u.jsonl", a_turn_is_kept_out(2 * MANY), unnamed).findings == []


def a_session_waits_for_its_second_turn(row: int) -> Events:
    """It has a row already."""
    of = {"step": 0, "session": "s"}
    pages = tuple(page_of(row, at) for at in range(3))
    yield {"action": "open", **of}
    yield {"action": "create", "turn": "s/1", **of, "params": {"origin_len": 3, "admitted": True}}
    yield {"action": "match", "turn": "s/1", **of, "params": {"fill_len": 3}}
    yield {
        "action": "extend",
        "turn": "s/1",
        **of,
        "row": row,
        "params": {"seq_len": 3, "last": True},
        "alloc": pages,
    }
    yield {"action": "result", "turn": "s/1", **of, "params": {"tokens": 1}}
    yield {"action": "finish", "turn": "s/1", **of, "params": {"finished_len": 1}}
    yield {"action": "create", "turn": "s/2", **of, "params": {"origin_len": 6, "admitted": True}}
    yield {"action": "match", "turn": "s/2", **of, "row": row, "params": {"fill_len": 6}}


@pytest.mark.parametrize("is_held_up", [False, True])
def test_one_behind_another_that_has_no_room_is_none_while_others_run(tmp_path: Path, is_held_up: bool) -> None:
    """A queue may be served in order: the session's turn has a row, and "b", which may be before it, has none."""

    def events() -> Events:
        yield from admitted("a", 0)
        if is_held_up:
            yield from arrives("b")
        yield from a_session_waits_for_its_second_turn(1)
        for step in range(1, 2 * MANY):
            yield from decoded("a", 0, step)

    two_rows = CONFIG.model_copy(update={"rows": 2})
    if is_held_up:
        assert judged(tmp_path / "t.jsonl", events(), two_rows).findings == []
    else:
        assert standing(tmp_path / "t.jsonl", events(), two_rows).ledger == "session s"


def test_one_behind_another_is_found_where_nothing_runs(tmp_path: Path) -> None:
    """Then nobody will ever give back what the other one lacks."""
    events = [*a_session_waits_for_its_second_turn(0), *arrives("b"), idle(MANY)]
    assert standing(tmp_path / "t.jsonl", iter(events), CONFIG.model_copy(update={"rows": 1})).ledger == "session s"


def test_one_that_waited_a_little_less_is_none(tmp_path: Path) -> None:
    assert judged(tmp_path / "t.jsonl", a_turn_is_kept_out(MANY - 1)).findings == []


def test_each_admission_begins_the_wait_anew(tmp_path: Path) -> None:
    """Who is preferred is the scheduler's choice."""

    def events() -> Events:
        yield from admitted("a", 0)
        yield from arrives("b")
        for step in range(1, 2 * MANY):
            if step == MANY:
                yield from admitted("c", 1, step=MANY)
            yield from decoded("a", 0, step)

    assert judged(tmp_path / "t.jsonl", events()).findings == []


def test_where_no_step_is_told_no_pass_is_counted(tmp_path: Path) -> None:
    events = ({**event, "step": None} for event in a_turn_is_kept_out(2 * MANY))
    assert judged(tmp_path / "t.jsonl", events).findings == []


def test_a_running_turn_that_is_in_no_batch_any_more_is_found(tmp_path: Path) -> None:
    def events() -> Events:
        yield from admitted("a", 0)
        yield from admitted("b", 1)
        for step in range(1, 2 * MANY):
            yield from decoded("a", 0, step)

    finding = standing(tmp_path / "t.jsonl", events())
    assert finding.pages[0] == "b decodes: 4 tokens, 3 pages of its own"
    assert finding.event.step == MANY


def idle(passes: int, **params: bool) -> dict[str, Any]:
    return {"action": "check", "params": {"idle_passes": passes, **params}}


def test_a_turn_that_waits_while_nothing_runs_is_found(tmp_path: Path) -> None:
    finding = standing(tmp_path / "t.jsonl", iter([*arrives("b"), idle(MANY, marked_full=True)]))
    assert finding.pages[1] == "the scheduler marks its batch as full"
    assert judged(tmp_path / "u.jsonl", iter([*arrives("b"), idle(MANY - 1)])).findings == []


def test_one_that_does_not_fit_is_not_found_but_makes_the_trace_incomplete(tmp_path: Path) -> None:
    too_few = CONFIG.model_copy(update={"pool_pages": 2})
    report = judged(tmp_path / "t.jsonl", iter([*arrives("b"), idle(MANY)]), too_few)
    assert (report.verdict, report.findings) == (INCOMPLETE, [])
    assert "the scheduler finds nothing to run, and request b waits" in report.why
    gone_on = iter([*arrives("b"), idle(MANY), *arrives("c")])
    assert judged(tmp_path / "u.jsonl", gone_on, too_few).verdict == CONFORMS


def test_a_turn_that_is_in_the_batch_of_an_idle_scheduler_is_found(tmp_path: Path) -> None:
    finding = standing(tmp_path / "t.jsonl", iter([*admitted("a", 0), idle(MANY)]))
    assert finding.ledger == "request a"


def a_close_waits() -> Events:
    yield {"action": "open", "step": 0, "session": "s", "after": {"inflight": False, "closing": False}}
    yield {"action": "create", "step": 0, "session": "s", "turn": "t", "params": {"origin_len": 3, "admitted": True}}
    yield {"action": "close", "step": 0, "session": "s", "after": {"inflight": True, "closing": True}}
    yield {"action": "abort", "step": 0, "session": "s", "turn": "t", "after": {"inflight": False, "closing": True}}


def test_a_close_whose_turn_is_over_and_that_is_not_done_is_found(tmp_path: Path) -> None:
    finding = standing(tmp_path / "t.jsonl", iter([*a_close_waits(), idle(MANY)]))
    assert (finding.ledger, finding.pages[0]) == ("session s", "the close of session s waits")
    assert finding.rule.startswith("a close that waits is done: ")


def test_a_turn_that_its_session_refused_and_that_waits_is_named(tmp_path: Path) -> None:
    opened, created, _, aborted = a_close_waits()
    refused = {**created, "turn": "a", "params": {"origin_len": 3, "admitted": False}}
    over = {**aborted, "after": {"inflight": False, "closing": False}}
    finding = standing(tmp_path / "t.jsonl", iter([opened, created, refused, over, *arrives("a"), idle(MANY)]))
    assert finding.pages[0].startswith("a waits in the queue: ")


def prefilled(turn: str, row: int, tokens: int) -> Events:
    pages = tuple(page_of(row, at) for at in range(tokens))
    after = {"kv_committed_len": tokens, "kv_allocated_len": tokens, "cache_protected_len": 0}
    params = {"seq_len": tokens, "last": True}
    yield {"action": "match", "step": 0, "turn": turn, "params": {"fill_len": tokens}, "after": {"prefix_len": 0}}
    yield {"action": "extend", "turn": turn, "row": row, "params": params, "alloc": pages, "after": after}


def retracted(turn: str, row: int, tokens: int) -> Events:
    """Before the result of its prefill is in."""
    yield from prefilled(turn, row, tokens)
    pages = tuple(page_of(row, at) for at in range(tokens))
    yield {"action": "retract", "step": 0, "turn": turn, "row": row, "free": pages}


def goes_round(*times: int) -> Events:
    """Retracted so often, and so often again after a token."""
    yield {"action": "arrive", "step": 0, "turn": "a", "params": {"origin_len": 3}}
    for tokens, more in enumerate(times, 3):
        for _ in range(more):
            yield from retracted("a", 0, tokens)
        yield from prefilled("a", 0, tokens)
        yield {"action": "result", "step": 0, "turn": "a", "params": {"tokens": 1}}
        yield {
            "action": "retract",
            "step": 0,
            "turn": "a",
            "row": 0,
            "free": tuple(page_of(0, at) for at in range(tokens)),
        }


def test_a_turn_that_is_retracted_again_and_again_without_a_token_is_found(tmp_path: Path) -> None:
    finding = standing(tmp_path / "t.jsonl", goes_round(Patience().retracts + 1), OVERLAPPING)
    assert finding.event.action == "retract"
    assert (
        finding.rule == f"a turn continues: it was retracted {Patience().retracts + 1} times, and got no token between"
    )


def test_some_retracts_before_each_token_are_right(tmp_path: Path) -> None:
    most = Patience().retracts
    assert judged(tmp_path / "t.jsonl", goes_round(most, most - 1), OVERLAPPING).first is None


IDLE = {"action": "check", "params": {"idle_passes": 1, "busy": True}}
"""An event that the compiled checker leaves to the interpreted one."""


def is_asked_to_abort(before: int, after: int, turn: str = "a", between: tuple[dict[str, Any], ...] = ()) -> Events:
    """So many steps are decoded before the abort is asked for, and so many after it; then the turn ends."""
    yield from admitted("a", 0)
    for step in range(1, before + 1):
        yield from decoded("a", 0, step)
    yield {"action": "ask_abort", "turn": turn}
    yield from between
    for step in range(before + 1, before + after + 1):
        yield from decoded("a", 0, step)
    pages = tuple(page_of(0, at) for at in range(3 + before + after))
    params = {"finished_len": before + after + 1, "inserted": False, "dup_len": 0}
    yield {"action": "finish", "turn": "a", "params": params, "free": pages}


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("between", [(), (IDLE,), (IDLE, {"action": "ask_abort", "turn": "a"})], ids=len)
def test_a_turn_that_runs_on_after_its_abort_was_asked_for_is_found(
    before: int, between: tuple[dict[str, Any], ...], tmp_path: Path
) -> None:
    most = Patience().aborted
    assert judged(tmp_path / "right.jsonl", is_asked_to_abort(before, most, between=between)).findings == []
    finding = standing(tmp_path / "t.jsonl", is_asked_to_abort(before, most + 1, between=between))
    assert finding.event.action == "decode" and finding.event.step == before + most + 1
    assert (
        finding.rule
        == f"a turn that is to be aborted ends: {most + 1} steps of it were launched since its abort was asked for"
    )


def test_a_name_that_is_used_again_is_asked_nothing(tmp_path: Path) -> None:
    again = [e for n in range(4, 12) for e in decoded("a", 0, n, admitted_in=3)]
    assert (
        judged(tmp_path / "t.jsonl", iter([*is_asked_to_abort(1, 1), *admitted("a", 0, step=3), *again])).findings == []
    )


def test_the_abort_of_a_turn_that_is_over_cannot_be_asked_for(tmp_path: Path) -> None:
    events = [*is_asked_to_abort(1, 1), {"action": "ask_abort", "turn": "a"}]
    report = judged(tmp_path / "t.jsonl", iter(events))
    assert report.first is not None and report.first.pages == (
        "turn a is not there any more, or never was: its abort cannot be asked for",
    )
    unknown = judged(tmp_path / "unknown.jsonl", is_asked_to_abort(1, 1, turn="b"))
    assert unknown.verdict == VIOLATES
