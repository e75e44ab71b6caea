"""Events judged in blocks by the compiled checker: the same trouble, after the same events, as each judged at once."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import completed, of_its_own
from pydantic import ValidationError

pytest.importorskip("torch")
pytest.importorskip("numba")
from fuzzing import campaigns

from kvproof.conformance.adapters.reference import header_of
from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz import judging
from kvproof.conformance.fuzz.judging import Judging, NewJudging, judging_by
from kvproof.conformance.fuzz.play import CRASH, STUCK, Played, play
from kvproof.conformance.fuzz.reference import Reference
from kvproof.conformance.fuzz.schedule import Act, Schedule
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.impl.config import EngineConfig
from kvproof.impl.observe import Event
from kvproof.spec.faults import FAULTS
from kvproof.spec.trace import Event as TraceEvent

HOW_MANY = 60
GOLDEN = Path(__file__).parents[2] / "golden" / "sglang-0.5.23"


@pytest.fixture(scope="module")
def by_blocks() -> NewJudging:
    return judging_by("compiled", 0)


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference()


@pytest.fixture(scope="module")
def drawn(reference: Reference) -> list[Schedule]:
    return [*reference.seeds, *campaigns.drawn(reference, HOW_MANY, seed=7)]


def told(played: Played) -> tuple[Any, ...]:
    finding = None if played.trouble is None else played.trouble.finding
    return (
        played.trouble and (played.trouble.signature, played.trouble.sentence, played.trouble.faults),
        finding and (finding.event, finding.line, finding.invariants),
        played.events,
        {name: dict(part) for name, part in vars(played.coverage).items()},
    )


@pytest.mark.slow
@pytest.mark.parametrize("fault", [None, "F22213", "F21875c", "F20070", "F22651", "S0511a"])
def test_blocks_come_to_the_same(
    reference: Reference, drawn: list[Schedule], by_blocks: NewJudging, fault: str | None, monkeypatch: Any
) -> None:
    monkeypatch.setattr(judging, "BLOCK", 16)
    some = [s.model_copy(update={"faults": (fault,) if fault in FAULTS else ()}) for s in drawn]
    kinds = set()
    for schedule in some:
        try:
            at_once = play(schedule, reference)
        except UserError:
            continue
        assert told(play(schedule, reference, new_judging=by_blocks)) == told(at_once)
        kinds.add(at_once.trouble and at_once.trouble.kind)
    assert (kinds == {None}) == (fault is None)


class Lazy(Reference):
    """Does three steps, and no more."""

    def start(self, *args: Any, **options: Any) -> Any:
        run = super().start(*args, **options)
        steps = iter([run.step] * 3)
        run.step = lambda: next(steps, lambda: None)()  # type: ignore[method-assign]
        return run


def test_who_waits_for_what_is_told_where_requests_do_not_end(by_blocks: NewJudging) -> None:
    acts = (
        Act(do="open"),
        Act(do="turn", new_tokens=9, max_new_tokens=2),
        Act(do="step", times=3),
        Act(do="turn", new_tokens=3, max_new_tokens=5),
        Act(do="send", new_tokens=30, max_new_tokens=5),
    )
    schedule = Schedule(target="reference", settings={"page_size": 4, "rows": 1, "window": "page"}, acts=acts)
    for new in (Judging, by_blocks):
        trouble = play(schedule, Lazy(), new_judging=new).trouble
        assert trouble is not None and trouble.kind == STUCK
        assert trouble.trace.splitlines() == [
            "r1 of session s0 waits in the queue: the 1 more pages for its 14 tokens could be had, and a row",
            "r2 waits in the queue: for a row, of which none is free",
            "pages, of 56: 53 free; 0 of the tree and not locked; 2 locked; session s0 1",
            "window pages, of 28: 25 free",
            "rows, of 1: 1 held, by session s0",
        ]


def test_what_is_behind_the_finding_is_not_kept(by_blocks: NewJudging) -> None:
    for new in (Judging, by_blocks):
        one = new(header_of(EngineConfig()))
        one.see(Event("open", 0, session="s"))
        one.see(Event("open", 0, session="s"))  # no rule applies to this
        one.see(Event("open", 0, session="t"))
        one.settle()
        assert one.finding is not None and one.finding.event.seq == 1
        assert [event.session for event in one.events] == ["s", "s"] and one.seen == 2


def test_a_free_list_that_was_seen_empty_is_no_list_that_was_not_seen(by_blocks: NewJudging) -> None:
    pages = EngineConfig().pool_pages
    terms = {"available": pages, "evictable": 0, "protected": 0, "session_held": 0, "uncached": 0, "total": pages}
    for new in (Judging, by_blocks):
        for free_list, is_right in ((None, True), ((), False), (tuple(range(1, pages + 1)), True)):
            one = new(header_of(EngineConfig()))
            one.see(Event("check", 0, params={"busy": False}, terms=terms, free_list=free_list))
            one.settle()
            assert (one.finding is None) == is_right


def test_events_that_are_none_are_the_targets_fault(by_blocks: NewJudging, reference: Reference) -> None:
    class Wrong(Reference):
        def start(self, settings: Any, faults: Any, tell: Any, *, own_checks: bool = True) -> Any:
            def wrongly(event: Any) -> None:
                tell(dataclasses.replace(event, action="no such action"))

            return super().start(settings, faults, wrongly, own_checks=own_checks)

    for new in (Judging, by_blocks):
        played = play(reference.seeds[0], Wrong(), new_judging=new)
        trouble = played.trouble
        assert trouble is not None and trouble.kind == CRASH and "no such action" in trouble.sentence
        assert played.events == []


@pytest.mark.parametrize("row", [float("nan"), float("inf"), 1.5])
def test_a_number_that_is_none_is_not_taken_for_one_that_was_not_told(by_blocks: NewJudging, row: float) -> None:
    for new in (Judging, by_blocks):
        one = new(header_of(EngineConfig()))
        with pytest.raises(ValidationError, match="row"):
            one.see(Event("open", 0, session="s", row=row))  # type: ignore[arg-type]
            one.settle()


@pytest.mark.slow
def test_a_campaign_says_that_it_waits_for_the_compiler_the_first_time(tmp_path: Path) -> None:
    """It took minutes on a busy machine, and looked like a hang."""
    asked = ("fuzz", "--seconds", 1, "--checker", "compiled", "--set", "page_size=4", "--out", tmp_path / "out")
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    first, second = (completed(of_its_own(*asked), timeout=600, env=env) for _ in range(2))
    assert "note: compiling the checker" in first.stderr
    assert "compiling" not in second.stderr


def test_short_campaigns_do_not_wait_for_the_compiler() -> None:
    assert judging_by("auto", 1) is Judging and judging_by("interpreted", 1000) is Judging


@pytest.mark.slow
def test_blocks_are_judged_by_the_rules_of_a_profile(by_blocks: NewJudging) -> None:
    """A trace of a release that follows other rules: the model's own find something in it, the release's own nothing."""
    trace = read_trace(GOLDEN / "abort-first-p1.jsonl.gz")
    fields = [
        SimpleNamespace(**{name: value for name, value in vars(event).items() if name not in ("record", "seq")})
        for _, event in trace
        if isinstance(event, TraceEvent)
    ]
    found = {}
    for profile in (None, "auto"):
        judged = [new(trace.header, profile) for new in (Judging, by_blocks)]
        for one in judged:
            for event in fields:
                one.see(event)
            one.settle()
        at_once, in_blocks = judged
        assert at_once.finding == in_blocks.finding
        assert at_once.followed == in_blocks.followed
        found[profile] = in_blocks.finding
    assert found[None] is not None and found["auto"] is None
