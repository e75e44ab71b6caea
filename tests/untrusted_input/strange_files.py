"""Every kind of data file that kvproof reads beside traces: an example of each, what is done with one, and how one is spoilt.

The promise is the same for all: it is taken, or refused with one sentence; nothing else is raised, nothing is written outside
its folder, and it takes seconds at most. `fuzz_by_coverage.py` looks for files that break it, and CI tries some
(`test_strange_files.py`).
"""

from __future__ import annotations

import ast
import hashlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from pydantic import TypeAdapter

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from hostile_target import raises
from html_tags import Tags
from many_traces import broken
from run_traces import edited, renamed, trace_of_walk

from kvproof.conformance.adapters.workload import read_workload
from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz import campaign_state
from kvproof.conformance.fuzz.campaign import Campaign, Found
from kvproof.conformance.fuzz.campaign_jobs import CampaignJobs, SearchOptions, leave_summary
from kvproof.conformance.fuzz.finding_folder import leave
from kvproof.conformance.fuzz.growth import Sample
from kvproof.conformance.fuzz.isolation import InThisProcess
from kvproof.conformance.fuzz.schedule import Act, Schedule
from kvproof.conformance.gate import golden_traces, needs
from kvproof.conformance.replay import checkpoint, slice_state
from kvproof.conformance.replay import replay as replays
from kvproof.conformance.replay.checkpoint import Checkpoints
from kvproof.conformance.report.explain.page import page_of
from kvproof.conformance.report.explain.story import Subject, story_of
from kvproof.conformance.report.formats.junit import junit
from kvproof.conformance.report.formats.of_replay import events_of_replay
from kvproof.conformance.report.formats.run_events import Started
from kvproof.conformance.report.formats.sarif import sarif
from kvproof.conformance.report.formats.stream import versions
from kvproof.conformance.report.show_replay import as_json, verdict_lines
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.conformance.traces.records import line_of
from kvproof.model import cache as answers
from kvproof.model import prove
from kvproof.model.cache import Remembering, Store
from kvproof.model.explore import Walk
from kvproof.spec.trace import Event

MOST_SECONDS = 20.0
"""Of the processor, for one small file."""
TARGET = raises()


@dataclass(frozen=True)
class Kind:
    example: Callable[[Path], bytes]
    take: Callable[[bytes, Path], object]
    is_json: bool = True


def promise(kind: Kind, data: bytes, folder: Path) -> bool:
    """Whether it was taken; AssertionError, or what was raised, where the promise is broken."""
    began = time.process_time()
    inside = Path(tempfile.mkdtemp(dir=folder))
    try:
        kind.take(data, inside)
    except UserError as error:
        assert "\n" not in error.message and len(error.message) < 5000, error.message
        return False
    finally:
        assert list(folder.iterdir()) == [inside], "written outside its folder"
        for file in sorted(inside.rglob("*"), reverse=True):
            file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()
        inside.rmdir()
        assert time.process_time() - began < MOST_SECONDS
    return True


# --- schedules and campaigns --------------------------------------------------------------------------------------------


def a_schedule(_: Path) -> bytes:
    acts = (Act(do="open"), Act(do="turn", new_tokens=3, max_new_tokens=2), Act(do="step", times=3), Act(do="close"))
    return Schedule(target="reference", settings={"page_size": 2}, faults=("F22862a",), acts=acts).as_json().encode()


def take_schedule(data: bytes, folder: Path) -> None:
    (path := folder / "schedule.json").write_bytes(data)
    schedule = Schedule.load(path)
    assert Schedule.model_validate_json(schedule.as_json()) == schedule
    assert all(map(str, schedule.acts)) and schedule.size


def a_campaign(folder: Path) -> bytes:
    """One that found something."""
    plan = campaign_state.Plan(TARGET.name, seed=1)
    found = Campaign(TARGET, (), {}, seed=1, seconds=6)
    schedule = Schedule(target=TARGET.name, acts=(Act(do="open"), Act(do="send", new_tokens=3), Act(do="step")))
    played = InThisProcess(TARGET).play(schedule)
    assert played.trouble is not None
    found.found[played.trouble.signature] = Found(1, played)
    found.known = set(found.found)
    state = campaign_state.State(plan, [campaign_state.campaign_as_data(found)], {played.trouble.signature: 1})
    state.growth.samples.append(Sample(1.0, 2, 3, 4, 5, 6, 7, 1))
    campaign_state.save_state(state, folder)
    return (folder / campaign_state.STATE).read_bytes()


def take_campaign(data: bytes, folder: Path) -> None:
    (folder / campaign_state.STATE).write_bytes(data)
    whole = CampaignJobs(TARGET, campaign_state.load_state(folder), SearchOptions(1.0), folder, lambda *_: None)
    for found in whole.total.found.values():
        place = leave(found, folder)
        assert place.parent == folder
        tree = ast.parse((place / "test_finding.py").read_text(encoding="utf-8"))
        imports = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        assert imports == ["kvproof.conformance.fuzz.finding_folder", "kvproof.conformance.fuzz.schedule"]
        assert not [n for n in ast.walk(tree) if isinstance(n, ast.Import)]
    leave_summary(whole, folder)
    assert not {"script", "img", "b"} & set(tags_of((folder / "summary.html").read_text(encoding="utf-8")))
    whole.save()


# --- states of a replay -------------------------------------------------------------------------------------------------


@cache
def _a_trace() -> bytes:
    return _made_by(lambda path: broken(path, "F22862a"))


@cache
def _a_longer_trace() -> bytes:
    return _made_by(lambda path: trace_of_walk(path, 40, 3))


def _made_by(make: Callable[[Path], Path]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return make(Path(folder) / "t.jsonl").read_bytes()


def a_trace(path: Path) -> Path:
    """With a violation at its end."""
    path.write_bytes(_a_trace())
    return path


def a_longer_trace(path: Path) -> Path:
    path.write_bytes(_a_longer_trace())
    return path


CHECKERS = ["interpreted"]


def a_checkpoint(folder: Path) -> bytes:
    path = a_longer_trace(folder / "t.jsonl")
    checkpoints = Checkpoints(folder / "c.json", every=0)
    replays.replay(path, until=20, checkpoints=checkpoints)
    return (folder / "c.json").read_bytes()


def take_checkpoint(data: bytes, folder: Path) -> None:
    """With the checksum that it should have: whoever wants to can write that."""
    path = a_longer_trace(folder / "t.jsonl")
    with suppress(ValueError, RecursionError):
        fields = json.loads(data)
        if isinstance(fields, dict):
            fields.pop("sha256", None)
            data = json.dumps({**fields, "sha256": checkpoint._digest(checkpoint._canonical(fields))}).encode()
    (folder / "c.json").write_bytes(data)
    for checker in CHECKERS:
        checkpoints = Checkpoints(folder / "c.json", every=1e9)
        show(replays.replay(path, checkpoints=checkpoints, resume=True, checker=Chosen(checker)))


def show(report: Any) -> None:
    lines = [line.plain for line in verdict_lines(report, coverage=True)]
    assert lines and json.dumps(as_json(report))
    list(events_of_replay([report]))


def a_slice(folder: Path) -> bytes:
    reader = read_trace(a_longer_trace(folder / "t.jsonl"))
    state = slice_state.state_before(reader.path, 20, [e.turn for _, e in reader if isinstance(e, Event) and e.turn])
    return json.dumps({"first": 20, "checkpoint": state}).encode()


def take_slice(data: bytes, folder: Path) -> None:
    reader = read_trace(a_longer_trace(folder / "t.jsonl"))
    events = b"".join(line_of(event) + b"\n" for event in reader.events_from(20))
    header = json.loads(line_of(reader.header))
    try:
        header["extra"] = {"slice": json.loads(data)}
    except (ValueError, RecursionError):
        header["extra"] = {"slice": data.decode("latin-1")}
    (path := folder / "slice.jsonl").write_bytes(json.dumps(header).encode() + b"\n" + events)
    for checker in CHECKERS:
        show(replays.replay(path, checker=Chosen(checker)))


# --- workloads, and what lies beside traces -----------------------------------------------------------------------------

ROW = {"timestamp": 0, "input_length": 600, "output_length": 20, "hash_ids": [1, 2, 3]}


def a_mooncake(_: Path) -> bytes:
    return b"\n".join(
        json.dumps({**ROW, "timestamp": n, "hash_ids": [1, 2, *range(3, 3 + n)]}).encode() for n in range(4)
    )


def an_azure(_: Path) -> bytes:
    rows = (f"2023-11-16 18:17:{n:02}.9799600,{100 + n},{10 + n}" for n in range(4))
    return "\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]).encode()


def take_workload(data: bytes, folder: Path) -> None:
    (path := folder / "workload").write_bytes(data)
    for request in read_workload(path, scale=7):
        assert request.new_tokens >= 1 and request.output_tokens >= 1 and request.arrival_ms == request.arrival_ms


def what_is_expected(_: Path) -> bytes:
    return json.dumps({"traces": {"t.jsonl": {"verdict": "violates", "fault": "F22862a", "events": 9}}}).encode()


def take_expected(data: bytes, folder: Path) -> None:
    a_trace(folder / "t.jsonl")
    (folder / golden_traces.EXPECTED).write_bytes(data)
    for trace, expected in golden_traces.kept_in(folder):
        assert trace.parent == folder
        replays.replay(trace, profile=expected.profile)


def what_is_accepted(_: Path) -> bytes:
    return b"# known\nmatch_slot: F22862a\ncrash: KeyError in step\n"


def take_accepted(data: bytes, folder: Path) -> None:
    (path := folder / "accepted.txt").write_bytes(data)
    assert needs.accepted_in(path)


# --- answers that are kept ----------------------------------------------------------------------------------------------


def an_answer(_: Path) -> bytes:
    answer = {"page_size": 1, "row_width": 3, "config": {"tree": True}, "states": 3, "depth": 2}
    return json.dumps([[answer | {"taken": {"open": 2}, "stuck": 0}, {"x": 0}], "not whole"]).encode()


def take_answer(data: bytes, folder: Path) -> None:
    """Whatever was kept, what it should say is worked out."""
    explored = prove.EXPLORED.validate_python(json.loads(an_answer(folder)))
    store = Store(folder / "cache")
    searches: list[tuple[Callable[[], Any], TypeAdapter[Any]]] = [
        (lambda: explored, prove.EXPLORED),
        (lambda: Walk(1, {"open": 1}), prove.WALK),
        (lambda: ["x"], prove.SENTENCES),
    ]
    for search, kept_as in searches:
        key = answers.search_key("what", search)
        with suppress(ValueError, RecursionError):
            store.write(key, json.loads(data))
        path = store._path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or hashlib.sha256(data).digest()[0] < 64:
            path.write_bytes(data)
        Remembering(store).recall("what", search, kept_as)
        answers._as_answers(store.read(key))


# --- names --------------------------------------------------------------------------------------------------------------


def tags_of(page: str) -> list[str]:
    return [" ".join([tag, *sorted(attributes)]) for tag, attributes in Tags(page).seen]


def a_name(_: Path) -> bytes:
    return b"</script><script>alert(1)</script><b onclick='x'>\"&amp;]]>\x1b[31m --> \n::error::x"


def take_name(data: bytes, folder: Path) -> None:
    """As session, request, producer and scenario of a trace, in every report that there is."""
    plain = a_trace(folder / "t.jsonl")
    name = data.decode("utf-8", "replace")
    path = _named(plain, name)
    report = replays.replay(path)
    page = page_of(story_of(Subject(path)), Subject(path))
    assert tags_of(page) == _tags_of_a_harmless_page()
    events = [Started(command="replay", versions=versions(), arguments={}), *events_of_replay([report])]
    ElementTree.fromstring(junit(events).encode("utf-8"))
    json.loads(sarif(events).encode("utf-8"))


@cache
def _tags_of_a_harmless_page() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = _named(a_trace(Path(folder) / "t.jsonl"), "x")
        return tags_of(page_of(story_of(Subject(path)), Subject(path)))


def _named(plain: Path, name: str) -> Path:
    path = renamed(plain, lambda other: f"{other}{name}", plain.with_name("named.jsonl"))
    return edited(path, lambda records: records[0].update(producer=dict.fromkeys(("name", "version", "target"), name)))


KINDS: dict[str, Kind] = {
    "schedule": Kind(a_schedule, take_schedule),
    "campaign": Kind(a_campaign, take_campaign),
    "checkpoint": Kind(a_checkpoint, take_checkpoint),
    "slice": Kind(a_slice, take_slice),
    "mooncake": Kind(a_mooncake, take_workload, is_json=False),
    "azure": Kind(an_azure, take_workload, is_json=False),
    "expected": Kind(what_is_expected, take_expected),
    "accepted": Kind(what_is_accepted, take_accepted, is_json=False),
    "answer": Kind(an_answer, take_answer),
    "name": Kind(a_name, take_name, is_json=False),
}

# --- how a file is spoilt -----------------------------------------------------------------------------------------------

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 10**400, 0.5, 1e300, float("inf"), float("nan")),
    *(
        "",
        "x",
        "../../x",
        "/etc/passwd",
        "\0",
        "\ud800",
        "<script>",
        '"""',
        "os:abort",
        "9" * 30,
        "\n::error::x",
        "\x1b[31m",
    ),
    *([], {}, [[]], {"": {}}, [0] * 50, ["x"] * 50),
)


def spoilt(data: bytes, is_json: bool, rng: random.Random) -> bytes:
    """A value exchanged, left out or doubled where it is JSON; or some bytes."""
    if is_json and rng.random() < 0.8:
        with suppress(ValueError, RecursionError):
            value = json.loads(data)
            for _ in range(rng.choice((1, 1, 1, 2, 4))):
                value = _exchanged(value, rng)
            return json.dumps(value).encode("utf-8", "surrogatepass")
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        place = rng.randrange(len(changed) + 1)
        match rng.randrange(4):
            case 0:
                changed[place : place + 1] = rng.randbytes(1)
            case 1:
                del changed[place : place + rng.randrange(1, 9)]
            case 2:
                changed[place:place] = str(rng.choice(VALUES)).encode("utf-8", "surrogatepass")
            case _:
                changed[place:place] = changed[: rng.randrange(200)]
    return bytes(changed)


def _exchanged(value: Any, rng: random.Random) -> Any:
    """At one place, the deeper ones as likely as others."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.1:
        return rng.choice(VALUES)
    key = rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
    if rng.random() < 0.1:
        if isinstance(value, list):
            return [*value, value[key]] if rng.random() < 0.5 else value[:key] + value[key + 1 :]
        return {k: v for k, v in value.items() if k != key} | ({"another": value[key]} if rng.random() < 0.5 else {})
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[key] = _exchanged(value[key], rng)
    return changed
