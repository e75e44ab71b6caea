"""A counterexample of the model, run on the implementation: with the fault on the same outcome, without it another one."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from command_line import refusal, run
from many_traces import broken
from model_runs import SHOWN, steps_of_one_ledger
from run_traces import Records, edited, first_finding, records_of, refused
from trace_events import events_of, write_records, written

pytest.importorskip("torch")
from kvproof.conformance.adapters.reference import record_scenario
from kvproof.conformance.drive.counterexample import write_witness
from kvproof.conformance.drive.drive import DIVERGES, SAME, CannotDrive, Divergence, DriveReport, drive
from kvproof.conformance.replay.replay import replay
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.impl.faults import FAULTS as ALL_OF_THE_REFERENCE
from kvproof.impl.scenarios import SCENARIOS
from kvproof.model.explore import Taken, successors
from kvproof.model.oracle import Oracle
from kvproof.model.witness import witness
from kvproof.spec.faults import FAULTS
from kvproof.spec.state import Ledger, pristine

# Counterexamples with a step that the reference has no way to take, and the words that it says so with.
NO_SUCH_STEP = {
    "S0511c": "does not come back",  # a refused turn is answered at once
    "S0511d": "does not come back",
    "M17": "steps do not overlap",  # so no result is late
}
OF_THE_REFERENCE = [fault for fault in ALL_OF_THE_REFERENCE if fault in SHOWN]


class Saved(dict[str, Path]):
    """Counterexamples by fault; each is looked for when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __missing__(self, fault: str) -> Path:
        self[fault] = broken(self._folder / f"{fault}.jsonl", fault)
        return self[fault]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    return Saved(tmp_path_factory.mktemp("counterexamples"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.jsonl"


def recorded(scenario: str, path: Path, **options: Any) -> Path:
    settings = {"forward": "none", **options.pop("settings", {})}
    return Path(record_scenario(scenario, path, settings=settings, **options).path)


def names_of(faults: Any) -> set[str]:
    return {fault.id for fault in faults}


def test_every_fault_of_the_reference_has_a_counterexample_to_drive() -> None:
    assert set(ALL_OF_THE_REFERENCE) <= set(FAULTS)
    assert set(ALL_OF_THE_REFERENCE) == set(OF_THE_REFERENCE)
    assert not set(OF_THE_REFERENCE) & set(NO_SUCH_STEP)


@pytest.mark.parametrize("fault", OF_THE_REFERENCE)
def test_with_the_fault_on_the_implementation_does_the_same_as_the_counterexample(
    fault: str, saved: dict[str, Path]
) -> None:
    assert fault in names_of(first_finding(saved[fault]).explained_by)
    report = drive(saved[fault], faults=[fault])
    assert report.first is None and report.verdict == SAME


def first_divergence(path: Path, report: DriveReport) -> Divergence:
    """The first difference of what was driven; it is at the event that a replay flags."""
    assert report.first is not None and report.first.expected is not None
    assert report.first.expected.seq == first_finding(path).event.seq
    return report.first


@pytest.mark.parametrize("fault", [f for f in OF_THE_REFERENCE if f not in NO_SUCH_STEP])
def test_without_it_the_implementation_diverges_at_the_event_that_deviates(fault: str, saved: dict[str, Path]) -> None:
    report = drive(saved[fault])
    assert report.verdict == DIVERGES
    first = first_divergence(saved[fault], report)
    # Who is retracted by force is a rule of its own (F994e): the right one takes nobody here.
    assert first.differences or (fault, first.why) == ("F994e", "it did nothing")


@pytest.mark.parametrize("fault", [f for f in SHOWN if f not in OF_THE_REFERENCE and f not in NO_SUCH_STEP])
def test_a_fault_that_the_reference_does_not_have_is_contradicted_or_not_followed(
    fault: str, saved: dict[str, Path]
) -> None:
    try:
        report = drive(saved[fault])
    except CannotDrive as error:
        assert "the reference cannot be driven to this" in error.message
    else:
        first_divergence(saved[fault], report)


@pytest.mark.parametrize("fault", NO_SUCH_STEP)
def test_a_step_that_the_reference_does_not_have_is_named(fault: str, saved: dict[str, Path]) -> None:
    with pytest.raises(CannotDrive, match=f"cannot be driven to this .*{NO_SUCH_STEP[fault]}"):
        drive(saved[fault])


def test_what_the_implementation_did_is_flagged_by_the_replay_too(saved: dict[str, Path], path: Path) -> None:
    """The fault is not in the eye of the model: the implementation's own trace of the same run breaks the same rule."""
    for fault in OF_THE_REFERENCE:
        run("drive", saved[fault], "--fault", fault, "--out", path, "-q")
        assert fault in names_of(first_finding(path).explained_by)


# --- traces of the implementation itself ----------------------------------------------------------------------------------

# Two inputs that are too long are padded alike, and an ordinary request's event does not say that it is padded.
UNNAMED_PADDING = {("too-long", 1)}


@pytest.mark.parametrize("page_size", [1, 3, 4])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_implementation_follows_what_it_recorded(scenario: str, page_size: int, path: Path) -> None:
    recorded(scenario, path, page_size=page_size)
    if (scenario, page_size) in UNNAMED_PADDING:
        with pytest.raises(CannotDrive, match="the tree holds other tokens"):
            drive(path)
        return
    report = drive(path)
    assert report.first is None
    assert report.events == replay(path).events


# Once a chunk in the middle has given a token, a trace does not tell which of two results in flight an event is.
@pytest.mark.parametrize("fault", [f for f in OF_THE_REFERENCE if f != "F994d"])
def test_the_implementation_follows_what_it_recorded_with_a_fault_on(fault: str, path: Path) -> None:
    scenario = next(name for name, entry in SCENARIOS.items() if fault in entry.exposes)
    recorded(scenario, path, faults=(fault,))
    assert drive(path, faults=[fault]).first is None
    # Each retract of F994e is one that the right implementation takes, too; only that there is no end of them is wrong.
    assert (drive(path).first is None) == (fault == "F994e")


@pytest.mark.parametrize("page_size", [1, 4])
def test_whatever_is_changed_in_a_trace_is_no_longer_the_same(page_size: int, path: Path) -> None:
    """One value, one page or one row of one event: no comparison is left out."""
    recorded("retract", path, page_size=page_size, settings={"check_every_step": True})
    assert drive(path).verdict == SAME
    records = records_of(path)
    changes = [change for number, record in enumerate(records) for change in changes_of(number, record)]
    for number, changed in random.Random(page_size).sample(changes, 150):
        with suppress(CannotDrive):
            path = write_records(path, [*records[:number], changed, *records[number + 1 :]])
            assert drive(path).verdict == DIVERGES, changed


def changes_of(number: int, line: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    for part in ("after", "terms"):
        for name, value in line.get(part, {}).items():
            if name not in ("evictable", "protected", "total"):
                yield number, {**line, part: {**line[part], name: not value if isinstance(value, bool) else value + 1}}
    for part in ("alloc", "free", "shared"):
        if line.get(part):
            yield number, {**line, part: line[part][:-1]}
            if part != "alloc":
                yield number, {**line, part: [*line[part][:-1], line[part][-1] + 1]}
    if line.get("action") == "decode":
        yield number, {**line, "row": line["row"] + 1}


# --- choices that no rule allows ------------------------------------------------------------------------------------------


def cut_behind(records: Records, place: int) -> Records:
    """The trace up to this record: what comes behind a wrong choice would contradict it by itself."""
    return [*records[: place + 1], {"record": "end", "events": place}]


def rounds(path: Path) -> Records:
    """Rounds of speculation v2, on pages that none of them fills."""
    recorded("rounds", path, page_size=256)
    return records_of(path)


def first_place(records: Records, action: str, behind: int = 0) -> int:
    return next(n for n, record in enumerate(records) if n > behind and record.get("action") == action)


@pytest.mark.parametrize(("more", "verdict"), [(0, SAME), (-2, DIVERGES), (2, SAME)])
def test_the_implementation_is_not_told_to_reserve_too_little(more: int, verdict: str, path: Path) -> None:
    """How far ahead it reserves is its own choice, but for a round that would write behind it."""
    records = rounds(path)
    drafts, place = records[0]["config"]["drafts"], first_place(records, "decode")
    after = records[place]["after"]
    needed = after["kv_committed_len"] + 2 * drafts  # its own position is committed already; the prefill may move it on
    after["kv_allocated_len"] = needed + more
    write_records(path, cut_behind(records, place))
    assert (replay(path).first is None) == (verdict == SAME)
    report = drive(path)
    assert report.verdict == verdict
    if verdict == DIVERGES:
        assert report.first is not None and [d.name for d in report.first.differences] == ["kv_allocated_len"]


def test_the_implementation_is_not_told_to_accept_more_than_was_drafted(path: Path) -> None:
    records = rounds(path)
    place = first_place(records, "result", first_place(records, "decode"))
    records[place]["params"]["tokens"] = records[0]["config"]["drafts"] + 2
    with pytest.raises(CannotDrive, match=r"no round gives so many tokens.*no more is accepted than was drafted"):
        drive(write_records(path, cut_behind(records, place)))


# --- traces of the model --------------------------------------------------------------------------------------------------


def is_possible_on_the_reference(s: Ledger, taken: Taken) -> bool:
    """No late results, no refused turn that comes back, all output is kept, a deferred close is carried out at once."""
    name, params = taken.outcome.action.name, taken.params
    if s.closing and not s.inflight:
        return name == "close"
    trims = name == "finish" and params["finished_len"] != s.output_len
    return name not in ("late_result", "result_of_ended", "pass_by", "arrive") and not trims


def is_from_an_empty_tree(taken: Taken) -> bool:
    return not any(taken.params.get(name) for name in ("matched_len", "dup_len"))


def walk(page_size: int, row_width: int, length: int, seed: int) -> list[tuple[str, Taken]]:
    oracle, chance = Oracle.of(page_size, row_width), random.Random(seed)
    state, steps = pristine(oracle.d), []
    while len(steps) < length or (state.closing and not state.inflight):
        kinds: dict[tuple[str, ...], list[Taken]] = {}
        for taken in successors(oracle, state):
            if is_possible_on_the_reference(state, taken) and is_from_an_empty_tree(taken):
                flags = [name for name, value in taken.params.items() if value is True]
                kinds.setdefault((taken.outcome.action.name, *flags), []).append(taken)
        chances = [
            0.2 if same_kind[0].outcome.action.event in ("abort", "close") else 1.0 for same_kind in kinds.values()
        ]
        taken = chance.choice(chance.choices(list(kinds.values()), chances)[0])
        steps.append(("walk", taken))
        state = taken.outcome.after
    return steps


def test_any_run_of_a_session_that_the_model_allows_the_implementation_does(tmp_path: Path) -> None:
    """Unless the tree still has what an earlier turn left in it, where the walk takes it to be empty: that is rare."""
    driven, actions, chance = 0, set[str](), random.Random(7)
    for seed in range(50):
        page_size = chance.randint(1, 4)
        row_width = 2 * page_size + chance.randint(1, 5)
        steps = walk(page_size, row_width, 50, seed)
        write_witness(witness(steps, page_size, row_width), tmp_path / "walk.jsonl", {})
        try:
            assert drive(tmp_path / "walk.jsonl").first is None, seed
        except CannotDrive as error:
            assert "the tree holds other tokens" in error.message
            continue
        driven += 1
        actions.update(taken.outcome.action.name for _, taken in steps)
    assert driven > 35
    assert {"match_slot", "stash", "insert", "retract", "detach", "abort_retracted", "abort_nth"} <= actions


# --- the command ----------------------------------------------------------------------------------------------------------


def of_one_request(*last: tuple[str, dict[str, int | bool]]) -> list[tuple[str, Taken]]:
    """An ordinary request of two tokens that has two tokens of output, and then what is given."""
    begin = [
        ("arrive", {"origin_len": 2}),
        ("match_tree", {"matched_len": 0}),
        ("extend", {"seq_len": 2, "last": True}),
        ("result", {"tokens": 1}),
        ("decode", {}),
        ("result", {"tokens": 1}),
    ]
    return steps_of_one_ledger(1, 8, *begin, *last)


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (("finish_plain", {"dup_len": 0, "inserted": False}), "it always inserts"),
        (("result", {"tokens": 3}), "it does not speculate"),
        (("insert", {"dup_len": 0, "key_len": 3}), "only what was prefilled is inserted"),
    ],
)
def test_what_the_reference_does_not_have_is_said_in_a_sentence(
    last: tuple[str, dict[str, int | bool]], why: str, path: Path
) -> None:
    write_witness(witness(of_one_request(last), 1, 8), path, {})
    with pytest.raises(CannotDrive, match=why):
        drive(path)


def test_the_command_says_same_or_shows_the_first_event_that_differs(saved: dict[str, Path], tmp_path: Path) -> None:
    same = run("drive", saved["F22862b"], "--target", "reference", "--fault", "F22862b")
    assert same.exit_code == 0 and same.stdout.startswith("SAME")
    diverges = run("drive", saved["F22862b"], "--json", tmp_path / "r.json")
    assert diverges.exit_code == 1
    assert "the first 7 events as written" in diverges.stdout
    assert f"{saved['F22862b']}:9: event 7: match" in diverges.stdout
    assert "freed pages: expected [1], seen []" in diverges.stdout
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["verdict"], result["events"]) == ("otherwise", 8)
    assert result["first"]["expected"]["free"] == [1]
    assert "free" not in result["first"]["seen"]
    assert [d["name"] for d in result["first"]["differences"]] == ["freed pages"]


def test_prove_saves_what_replay_flags_and_drive_follows(path: Path) -> None:
    assert run("prove", "--fault", "F22790b", "--out", path, "-q").exit_code == 1
    assert "(F22790b, " in run("replay", path).stdout
    assert run("drive", path, "--fault", "F22790b", "-q").stdout == f"same\t{path}\t5 events\n"
    assert run("drive", path, "-q").stdout == f"otherwise\t{path}\t5 events\n"


def test_only_a_faulty_rule_has_a_run_to_save(path: Path) -> None:
    assert "name it with --fault" in refusal("prove", "--out", path)


@pytest.mark.parametrize(
    ("fault", "arguments", "answer"),
    [
        ("S0511c", [], ":7: event 5: the reference cannot be driven to this match"),
        ("F22862b", ["--target", "sglang"], "unknown target 'sglang'; valid: reference"),
        ("F22862b", ["--fault", "F2286"], "unknown fault of reference 'F2286'; did you mean F22862b or F22862a?"),
    ],
)
def test_what_cannot_be_driven_is_answered_in_one_sentence(
    fault: str, arguments: list[str], answer: str, saved: dict[str, Path]
) -> None:
    assert answer in refusal("drive", saved[fault], *arguments)


def test_a_trace_without_events_is_never_the_same(saved: dict[str, Path], path: Path) -> None:
    written(path, [], read_trace(saved["F20070"]).header)
    assert "nothing to drive" in refused(drive, path)


def test_a_trace_that_breaks_off_gives_no_verdict(saved: dict[str, Path], path: Path) -> None:
    result = run("drive", edited(saved["F22862b"], lambda records: records.__delitem__(slice(-2, None)), path))
    assert result.exit_code == 3
    assert "the trace is incomplete: it breaks off" in result.stdout


def test_what_the_implementation_does_of_itself_at_the_end_is_a_difference(saved: dict[str, Path], path: Path) -> None:
    """The trace ends where the turn ends, the implementation continues and carries out the deferred close."""
    begun = [
        event.model_dump(exclude={"record", "seq"}, exclude_unset=True) for event in events_of(saved["S0511b"])[:2]
    ]
    session, turn = begun[1]["session"], begun[1]["turn"]
    closed = {"action": "close", "session": session, "after": {"closing": True}}
    aborted = {"action": "abort", "session": session, "turn": turn, "after": {"inflight": False}}
    first = drive(written(path, [*begun, closed, aborted], read_trace(saved["S0511b"]).header)).first
    assert first is not None and first.expected is None
    assert first.seen is not None and first.seen.action == "close"
    assert "and then on its own close" in run("drive", path).stdout


def test_pages_may_have_other_names(saved: dict[str, Path], path: Path) -> None:
    def rename(records: Records) -> None:
        for record in records:
            record.update({name: [4 - page for page in record[name]] for name in ("alloc", "free") if name in record})

    edited(saved["F22862b"], rename, path)
    assert read_trace(path).header.config.pool_pages == 3
    assert drive(path, faults=["F22862b"]).verdict == SAME


@pytest.mark.parametrize(
    ("last", "why"),
    [
        ({"action": "create", "params": {"origin_len": 2**62}}, "its turns have more than 65536 tokens"),
        ({"action": "create", "params": {"origin_len": 2**17}}, "its turns have more than 65536 tokens"),
        ({"action": "result", "params": {"tokens": 2**62}}, "cannot be driven to this result"),
    ],
)
def test_a_trace_of_too_many_tokens_is_refused_before_they_are_made(
    last: dict[str, Any], why: str, saved: dict[str, Path], path: Path
) -> None:
    events = [{"action": "open", "session": "s"}, {"session": "s", "turn": "r", **last}]
    assert re.match(rf".*t\.jsonl:.* {why}", refused(drive, written(path, events, read_trace(saved["F20070"]).header)))
