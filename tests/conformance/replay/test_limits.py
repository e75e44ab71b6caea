"""Events that contradict the header of their trace, or the events before them, by either checker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_traces import Records, edited, trace_of_walk

from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.replay.limits import PARAMS, Limits
from kvproof.conformance.replay.replay import CONFORMS, INCOMPLETE, VIOLATES, Report, replay
from kvproof.conformance.replay.replayer import CONTRADICTS
from kvproof.conformance.traces.columnar_schema import FLAG_PARAMS, NUMBER_PARAMS
from kvproof.spec.trace import Config, Event, Terms

pytest.importorskip("torch")
from kvproof.conformance.adapters.reference import record_scenario

Change = Callable[[Records], object]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Right traces: without overlap, with a window pool, and with sessions that have several turns."""
    folder = tmp_path_factory.mktemp("recorded")
    names = ("abort-nth", "busy", "retract", "window", "many-sessions", "chunked", "deeper-match", "pressure", "storm")
    return {name: record_scenario(name, folder / f"{name}.jsonl", page_size=4).paths[0] for name in names}


def by_both(path: Path) -> Report:
    """What the interpreted checker says; the compiled one says the same."""
    pytest.importorskip("numba")
    interpreted = replay(path, checker=Chosen("interpreted"))
    assert replay(path, checker=Chosen("compiled")) == interpreted
    return interpreted


def config(**values: Any) -> Change:
    return lambda records: records[0]["config"].update(values)


def each(field: str, change: Callable[[dict[str, Any]], object], action: str | None = None) -> Change:
    """Change the events that have this field, and are of this action."""

    def changed(records: Records) -> None:
        found = [r for r in records[1:-1] if r.get(field) and action in (None, r["action"])]
        assert found
        for record in found:
            change(record)

    return changed


def first(action: str, **fields: Any) -> Change:
    """Put these fields into the first event of an action."""
    return lambda records: next(r for r in records[1:-1] if r["action"] == action).update(fields)


def more(field: str, name: str, by: int) -> Change:
    return each(field, lambda record: record[field].update({name: record[field][name] + by}))


def of_another_session(records: Records) -> None:
    """A decode names the turn of another session's create."""
    event = next(r for r in records[1:-1] if r["action"] == "decode" and r.get("session"))
    created = (r for r in records[1:] if r["action"] == "create" and r["session"] != event["session"])
    event["turn"] = next(created)["turn"]


def of_a_request(records: Records) -> None:
    """A decode of a session names a request of no session that runs."""
    arrived = next(r for r in records[1:-1] if r["action"] == "arrive")
    behind = records[records.index(arrived) :]
    next(r for r in behind if r["action"] == "decode" and r.get("session"))["turn"] = arrived["turn"]


def of_no_create(records: Records) -> None:
    next(r for r in records[1:-1] if r["action"] == "decode" and r.get("session"))["turn"] = "another"


def of_a_turn_that_is_over(records: Records) -> None:
    """The steps of a session's second turn are written as those of its first one, without their session."""
    created = [r for r in records[1:-1] if r["action"] == "create"]
    first, second = next((a, b) for a in created for b in created if b is not a and b["session"] == a["session"])
    for record in records[records.index(second) + 1 : -1]:
        if record.get("turn") == second["turn"]:
            record["turn"] = first["turn"]
            record.pop("session", None)


def arrives_behind_its_create(admitted: bool, origin_len: int) -> Change:
    """A turn of a session arrives as an ordinary request."""

    def changed(records: Records) -> None:
        created = next(r for r in records[1:-1] if r["action"] == "create" and r["params"]["admitted"] == admitted)
        arrives = {"action": "arrive", "params": {"origin_len": origin_len}, "after": {}}
        place = records.index(created) + 1
        records.insert(place, {key: value for key, value in created.items() if key != "session"} | arrives)
        for seq, record in enumerate(records[1:-1]):
            record["seq"] = seq

    return changed


def of_a_name_in_use(records: Records) -> None:
    """A session's first turn begins under the name of another session's, which is not over."""
    one, other = [r for r in records[1:-1] if r["action"] == "create"][:2]
    assert one["session"] != other["session"]
    for record in records[records.index(other) : -1]:
        if record.get("turn") == other["turn"]:
            record["turn"] = one["turn"]


def of_no_turn(records: Records) -> None:
    del next(r for r in records[1:-1] if r["action"] == "decode" and r.get("session"))["turn"]


def late_result_of_a_later_event(records: Records) -> None:
    config(overlap=True)(records)
    first("result", cause=10**4)(records)


def without_terms(records: Records) -> None:
    for record in records[1:-1]:
        if record.get("free_list"):
            del record["terms"]
            record["free_list"].pop()


TERMS = dict.fromkeys(("available", "evictable", "protected", "session_held", "uncached"), 0)
CONTRADICTIONS: dict[str, tuple[str, Change, str]] = {
    "a row outside": ("retract", each("row", lambda r: r.update(row=r["row"] + 99)), "row is 100, it must be"),
    "a row below": ("retract", each("row", lambda r: r.update(row=-1)), "row is -1, it must be"),
    "another pool's total": ("retract", more("terms", "total", 1), "the header says pool_pages"),
    "another window pool's total": ("window", more("window_terms", "total", 1), "the header says window_pages"),
    "no window pool": ("window", config(window_pages=0), "the header says window_pages 0"),
    "window terms without a window": (
        "retract",
        each("terms", lambda r: r.update(window_terms={**r["terms"], "total": 1})),
        "window_terms_total at an event 'check': the header says window 0",
    ),
    "window pages without a window pool": (
        "retract",
        first("decode", window_alloc=[1]),
        "the header says window_pages 0",
    ),
    "chunks where there are none": ("chunked", config(chunked_prefill_size=None), "no chunked_prefill_size"),
    "shorter chunks": ("chunked", config(chunked_prefill_size=4), "the header says chunked_prefill_size 4"),
    "pages taken by a check": ("retract", first("check", alloc=[9]), "alloc at an event 'check'"),
    "pages freed by a check": ("retract", first("check", free=[9]), "free at an event 'check'"),
    "pages taken by an eviction": ("pressure", first("evict", alloc=[9]), "alloc at an event 'evict'"),
    "terms of a decode": ("retract", first("decode", terms={**TERMS, "total": 128}), "only check may have it"),
    "a free list of a decode": ("retract", first("decode", free_list=[1]), "only check may have it"),
    "pages shared by a decode": ("retract", first("decode", shared=[1]), "shared at an event 'decode'"),
    "a length after a check": (
        "retract",
        first("check", after={"kv_committed_len": 3}),
        "after_kv_committed_len at an",
    ),
    "a flag after an eviction": ("pressure", first("evict", after={"inflight": False}), "after_inflight at an event"),
    "a parameter of no rule": ("retract", first("decode", params={"luck": 7}), "no event has a parameter 'luck'"),
    "tokens of a decode": ("retract", first("decode", params={"tokens": 1}), "param_tokens at an event 'decode'"),
    "an insert of a retract": (
        "retract",
        first("retract", params={"inserted": True}),
        "only finish, abort may have it",
    ),
    "an eviction by a turn": ("pressure", first("evict", turn="t"), "an evict names a session or a turn"),
    "a late result without overlap": ("chunked", first("result", cause=1), "the header says overlap false"),
    "a late result of a later event": ("retract", late_result_of_a_later_event, "which launched no step of turn"),
    "a turn of another session": ("many-sessions", of_another_session, "is of session"),
    "a turn of no session": ("many-sessions", of_a_request, "is of request"),
    "a step of no turn": ("many-sessions", of_no_turn, "it names no turn of session"),
    "a step of a turn that is over": ("many-sessions", of_a_turn_that_is_over, "is no turn of session"),
    "a refused turn with another input": (
        "busy",
        arrives_behind_its_create(False, 5),
        "tokens to its session, and here it has 5",
    ),
    "an admitted turn that arrives": ("busy", arrives_behind_its_create(True, 5), "and is not over"),
    "a name that another turn has": ("many-sessions", of_a_name_in_use, "and is not over"),
    "a number for a flag": ("retract", first("check", params={"busy": 0}), "busy is 0: it is true or false"),
    "a turn that was not created": ("many-sessions", of_no_create, "turn another was not created in session"),
}


def with_slot_lengths(records: Records) -> None:
    event = next(r for r in records[1:-1] if r.get("after", {}).get("slot_held") is False)
    event["after"]["slot_kv_committed_len"] = 4


def own_check(ok: bool) -> Change:
    return lambda records: [r for r in records if r.get("terms")][-1]["params"].update(own_check_ok=ok)


CONTRADICTIONS |= {
    "lengths of a slot of which nothing is told": (
        "many-sessions",
        first("open", after={"slot_kv_allocated_len": 8}),
        "after_slot_kv_allocated_len is 8 at an event 'open' without after_slot_held",
    ),
    "lengths of a slot that is not held": (
        "many-sessions",
        with_slot_lengths,
        "after_slot_kv_committed_len is 4 at an event 'open' although it says False for after_slot_held",
    ),
    "a check that fails with right terms": ("retract", own_check(ok=False), "the check read add up to their totals"),
}


@pytest.mark.parametrize(("scenario", "change", "sentence"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_an_event_that_contradicts_the_header_or_what_was_before_violates(
    scenario: str, change: Change, sentence: str, recorded: dict[str, Path], tmp_path: Path
) -> None:
    assert replay(recorded[scenario]).verdict == CONFORMS
    report = by_both(edited(recorded[scenario], change, tmp_path / "t.jsonl"))
    assert report.verdict == VIOLATES and report.first is not None
    assert report.first.rule == CONTRADICTS
    assert any(sentence in line for line in report.first.pages), report.first.pages


def test_a_check_whose_terms_do_not_add_up_says_so() -> None:
    check = Event(seq=0, action="check", params={"own_check_ok": True}, terms=Terms(**{**TERMS, "total": 8}))
    of_pool = Limits(Config(page_size=1, pool_pages=8, rows=1, row_width=9))
    assert [*of_pool.broken_by(check)] == [
        "own_check_ok is True, and the terms that the check read do not add up to their totals"
    ]
    assert not [*of_pool.broken_by(check.model_copy(update={"params": {"own_check_ok": False}}))]


@pytest.mark.parametrize(("window_pages", "window_terms", "wrong"), [(0, None, 1), (4, None, 0), (4, 4, 1)])
def test_a_check_may_fail_by_terms_of_the_window_pool_that_were_not_read(
    window_pages: int, window_terms: int | None, wrong: int
) -> None:
    def read(pages: int, total: int) -> Terms:
        return Terms(**{**TERMS, "available": pages, "total": total})

    of_window = read(window_terms, window_terms) if window_terms else None
    limits = Limits(Config(page_size=1, pool_pages=8, rows=1, row_width=9, window=4, window_pages=window_pages))
    failed = Event(seq=0, action="check", params={"own_check_ok": False}, terms=read(8, 8), window_terms=of_window)
    assert len([*limits.broken_by(failed)]) == wrong
    believed = failed.model_copy(update={"params": {"own_check_ok": True}, "terms": read(7, 8)})
    assert any("do not add up" in sentence for sentence in limits.broken_by(believed))


@pytest.mark.parametrize(
    ("action", "inserted", "name"),
    [("finish", False, "dup_len"), ("abort", False, "dup_len"), ("abort", None, "dup_len"), ("abort", None, "key_len")],
)
def test_of_a_turn_of_which_the_tree_took_nothing_no_length_is_told(
    name: str, action: str, inserted: bool | None
) -> None:
    limits = Limits(Config(page_size=1, pool_pages=8, rows=1, row_width=9))
    params = {"inserted": inserted, name: 4}
    wrong = Event.model_validate({"seq": 0, "action": action, "turn": "t", "params": params})
    assert [f"param_{name} is 4" in sentence for sentence in limits.broken_by(wrong)] == [True]
    nothing = {"seq": 0, "action": action, "turn": "t", "params": {**params, name: 0}}
    assert not [*limits.broken_by(Event.model_validate(nothing))]


def params_of(action: str, *, session: bool, **params: object) -> Change:
    """Put these parameters into the last event of an action, of a session or of none."""

    def change(records: Records) -> None:
        event = [r for r in records if r.get("action") == action and ("session" in r) is session][-1]
        event.setdefault("params", {}).update(params)

    return change


def fewer_shared(records: Records) -> None:
    next(r for r in records if r.get("action") == "insert" and len(r.get("shared", ())) > 1)["shared"].pop()


def one_number_twice(*, as_long: bool) -> Change:
    """Two requests with different prompts, and one number for both prefixes. `as_long`: they have as many pages."""

    def change(records: Records) -> None:
        told = [r for r in records if r.get("action") == "insert" and r["params"].get("prefix_id")]
        number = told[0]["params"]["prefix_id"]
        others = (r for r in told if r["params"]["prefix_id"] != number)
        later = next(r for r in others if (len(r["shared"]) == len(told[0]["shared"])) is as_long)
        later["params"]["prefix_id"] = number

    return change


def of_another_row(records: Records) -> None:
    """The last request that ends, of which the tree takes pages, shows another page than its row has."""
    last = [r for r in records if r.get("action") == "finish" and r["params"].get("inserted")][-1]
    last["shared"] = [1]


def rows_but_one(records: Records) -> None:
    """The row with the highest number is called 0, and the header says one row less."""
    most = max(r["row"] for r in records if r.get("row"))
    for record in records[1:]:
        if record.get("row") == most:
            record["row"] = 0
    records[0]["config"]["rows"] = most - 1


def copies_that_nobody_inserted(records: Records) -> None:
    """The first request that ends gives its own pages back as copies of the tree's. Later events are not looked at."""
    place, event = next((n, r) for n, r in enumerate(records) if r.get("action") == "finish" and "session" not in r)
    turn = event["turn"]
    of_row = [page for r in records[:place] if r.get("turn") == turn for page in r.get("alloc", ())]
    handed = [
        r["after"]["cache_protected_len"] for r in records[:place] if r.get("turn") == turn and r["action"] == "insert"
    ][-1]
    committed = [
        r["after"]["kv_committed_len"] for r in records[:place] if r.get("turn") == turn and r["action"] == "decode"
    ][-1]
    event["params"]["dup_len"] = committed // 4 * 4
    event["params"].pop("prefix_id", None)
    event["free"] = of_row[handed // 4 :]
    assert event["params"]["dup_len"] > handed


TOLD_OF_THE_TREE = {
    "copies of a session's turn": ("many-sessions", params_of("finish", session=True, dup_len=4), "I16", "dup_len"),
    "a key of a session's turn": ("many-sessions", params_of("finish", session=True, key_len=4), "I12", "key_len"),
    "a key that the rule does not read": (
        "many-sessions",
        params_of("finish", session=False, key_len=4),
        "I12",
        "key_len",
    ),
    "a prefix of a session's turn": (
        "many-sessions",
        params_of("finish", session=True, prefix_id=3),
        "I12",
        "the finish numbers a prefix and puts none into the tree or the row",
    ),
    "a prefix of a prefill that shares nothing": (
        "retract",
        params_of("extend", session=True, prefix_id=3),
        "I12",
        "prefix",
    ),
    "an insert that shows fewer pages": (
        "many-sessions",
        fewer_shared,
        "I12",
        "pages of the tree, its row begins with",
    ),
    "one number for two prefixes": (
        "storm",
        one_number_twice(as_long=True),
        "I12",
        "is the prefix that ends with page",
    ),
    "one number for two lengths": ("storm", one_number_twice(as_long=False), "I12", "is of a prefix of"),
    "pages that a finish shows and its row has not": ("storm", of_another_row, "I12", "shows page 1 at position"),
    "tokens that an abort gives and nobody made": (
        "abort-nth",
        params_of("abort", session=True, finished_len=1000),
        "I14",
        "finished_len",
    ),
    "more rows than there are": ("storm", rows_but_one, "I5", "is handed out while all"),
    "copies that nobody inserted": (
        "storm",
        copies_that_nobody_inserted,
        "I16",
        "and the tree has no page behind page",
    ),
}


@pytest.mark.parametrize(("scenario", "change", "invariant", "said"), TOLD_OF_THE_TREE.values(), ids=TOLD_OF_THE_TREE)
def test_what_an_event_says_of_the_tree_is_what_its_pages_say(
    scenario: str, change: Change, invariant: str, said: str, recorded: dict[str, Path], tmp_path: Path
) -> None:
    finding = by_both(edited(recorded[scenario], change, tmp_path / "t.jsonl")).first
    assert finding is not None and invariant in finding.invariants
    assert any(said in text for text in (*finding.pages, *(d.name for d in finding.differences)))


@pytest.mark.parametrize(
    ("scenario", "action", "name"),
    [
        ("many-sessions", "insert", "prefix_id"),
        ("many-sessions", "finish", "prefix_id"),
        ("deeper-match", "extend", "prefix_id"),
        ("retract", "check", "busy"),
    ],
)
def test_what_the_recorder_of_the_reference_always_tells_is_missed(
    scenario: str, action: str, name: str, recorded: dict[str, Path], tmp_path: Path
) -> None:
    def change(records: Records) -> None:
        del next(r for r in records if r.get("action") == action and name in r.get("params", {}))["params"][name]

    report = by_both(edited(recorded[scenario], change, tmp_path / "t.jsonl"))
    assert report.verdict == INCOMPLETE
    assert f"{action}: {name} (1 times)" in report.why


def test_an_ordinary_request_keeps_no_more_than_was_generated(recorded: dict[str, Path], tmp_path: Path) -> None:
    def longer(records: Records) -> None:
        of_no_session = (r for r in records if r.get("action") == "finish" and "session" not in r)
        next(of_no_session)["params"]["finished_len"] += 5

    report = by_both(edited(recorded["many-sessions"], longer, tmp_path / "t.jsonl"))
    assert report.first is not None and [*report.first.invariants] == ["I14"]


def twice(field: str) -> Change:
    return each(field, lambda record: record[field].append(record[field][0]))


@pytest.mark.parametrize(
    ("scenario", "change", "sentence"),
    [
        ("retract", twice("free_list"), "is 2 times in the free list"),
        ("window", twice("window_free_list"), "is 2 times in the free list"),
        ("retract", without_terms, "is in no free list and has no owner"),
        ("deeper-match", each("shared", lambda r: r["shared"].append(1), "extend"), "were written to the row"),
    ],
)
def test_a_list_of_pages_with_one_too_many_or_too_few_violates(
    scenario: str, change: Change, sentence: str, recorded: dict[str, Path], tmp_path: Path
) -> None:
    report = by_both(edited(recorded[scenario], change, tmp_path / "t.jsonl"))
    assert report.verdict == VIOLATES and report.first is not None
    assert any(sentence in line for line in report.first.pages), report.first.pages


def test_a_chunk_that_shows_other_pages_than_its_row_has_violates(recorded: dict[str, Path], tmp_path: Path) -> None:
    """A row that is there already takes nothing over from the tree."""
    report = by_both(edited(recorded["chunked"], of_a_later_chunk([99]), tmp_path / "t.jsonl"))
    assert report.first is not None and any("the extend shows page 99" in line for line in report.first.pages)


def of_a_later_chunk(shared: list[int]) -> Change:
    return lambda records: next(r for r in records if r.get("action") == "extend" and r.get("shared") is None).update(
        shared=shared
    )


def test_a_shared_prefix_whose_window_pages_are_gone_violates(recorded: dict[str, Path], tmp_path: Path) -> None:
    """The window of the next token reaches them (SGLang #17061)."""
    report = by_both(edited(recorded["window"], evict_the_window_of_a_prefix, tmp_path / "t.jsonl"))
    assert report.first is not None and report.first.event.action == "extend"
    assert [*report.first.invariants] == ["I10"]
    assert any("the window of the next token reaches it" in line for line in report.first.pages)


def evict_the_window_of_a_prefix(records: Records) -> None:
    """Right before a request takes that prefix over."""
    window_of: dict[int, int] = {}
    for place, record in enumerate(records):
        if record.get("action") == "extend" and record.get("shared"):
            records.insert(place, {**record_of_evict(record), "window_free": [window_of[record["shared"][-1]]]})
            for seq, later in enumerate(records[1:-1]):
                later["seq"] = seq
            records[-1]["events"] += 1
            return
        window_of |= zip(record.get("alloc", ()), record.get("window_alloc", ()), strict=True)


def record_of_evict(record: dict[str, Any]) -> dict[str, Any]:
    return {"record": "event", "seq": record["seq"], "step": record["step"], "action": "evict"}


def test_a_row_where_none_is_held_violates(recorded: dict[str, Path], tmp_path: Path) -> None:
    report = by_both(edited(recorded["retract"], first("match", row=1), tmp_path / "t.jsonl"))
    assert report.first is not None
    assert [(d.name, d.expected, d.seen) for d in report.first.differences] == [("row", None, 1)]


@pytest.mark.parametrize("action", ["match", "close", "decode"])
def test_an_event_that_names_another_row_than_its_ledger_has_violates(
    action: str, recorded: dict[str, Path], tmp_path: Path
) -> None:
    change = each("row", lambda record: record.update(row=record["row"] + 1), action)
    report = by_both(edited(recorded["retract"], change, tmp_path / "t.jsonl"))
    assert report.first is not None and [d.name for d in report.first.differences] == ["row"]


def test_a_name_of_a_turn_may_be_used_again_in_another_session(tmp_path: Path) -> None:
    """Once it is over: its events are then the new session's."""
    path = trace_of_walk(tmp_path / "t.jsonl", 200, 4, ledgers=4)
    over: list[str] = []

    def reuse(records: Records) -> None:
        new_name: dict[str, str] = {}
        for record in records[1:-1]:
            turn = record.get("turn")
            if record["action"] == "create" and over:
                new_name[turn] = over.pop(0)
            if turn in new_name:
                record["turn"] = new_name[turn]
            if record["action"] in ("finish", "abort") and record.get("session"):
                over.append(record["turn"])

    before = by_both(path)
    after = by_both(edited(path, reuse, tmp_path / "u.jsonl"))
    assert (before.verdict, after.verdict) == (CONFORMS, CONFORMS)


def test_each_parameter_of_a_trace_has_its_events() -> None:
    assert set(PARAMS) == {*FLAG_PARAMS, *NUMBER_PARAMS}


def test_a_plain_event_keeps_the_limits() -> None:
    limits = Limits(Config(page_size=4, pool_pages=8, rows=2, row_width=32))
    assert not [*limits.broken_by(Event(seq=0, action="decode", session="s", turn="t", row=2, alloc=(8,)))]
