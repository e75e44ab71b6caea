"""Files of data that a stranger wrote: none is run, none takes the program down, none asks for more than a bound.

Item by item, found by hand; bytes changed by chance, of the same files, are in tests/fuzz. Traces: test_hostile_traces.py.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import refusal, run
from pydantic import TypeAdapter
from repository import ROOT
from run_traces import refused
from trace_events import HEADER, written

from kvproof.conformance.adapters.workload import LONGEST_LINE, MOST_TOKENS, read_workload
from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz.campaign import Found
from kvproof.conformance.fuzz.campaign_state import (
    STATE,
    Plan,
    State,
    campaign_as_data,
    campaigns_of,
    load_state,
    save_state,
)
from kvproof.conformance.fuzz.finding_folder import leave
from kvproof.conformance.fuzz.play import Played, Trouble
from kvproof.conformance.fuzz.schedule import Act, Schedule
from kvproof.conformance.fuzz.summary_page import summary_page
from kvproof.conformance.fuzz.targets import target_named
from kvproof.conformance.gate.golden_traces import EXPECTED, kept_in
from kvproof.conformance.gate.needs import accepted_in
from kvproof.conformance.replay.checkpoint import Checkpoints
from kvproof.conformance.replay.replay import replay
from kvproof.conformance.traces import data_file
from kvproof.model.cache import Remembering, Store
from kvproof.model.explore import Walk
from kvproof.spec.trace import Producer

CODE = "from pathlib import Path\nPath('was-here').touch()\ndef factory(): raise SystemExit(3)\n"
DEEP = "[" * 100_000
A_TRACE = (ROOT / "tests" / "untrusted_input" / "corpus" / "lines-0").read_bytes()[1:]


@pytest.fixture
def strangers_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A target that leaves a file wherever it is imported."""
    (tmp_path / "strangers_code.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "strangers_code", raising=False)
    return "strangers_code:factory"


# --- a file never chooses what is imported ------------------------------------------------------------------------------


def save_schedule(target: str, folder: Path) -> tuple[object, ...]:
    Schedule(target=target, acts=(Act(do="open"),)).save(folder / "schedule.json")
    return "--replay", folder / "schedule.json"


def save_campaign(target: str, folder: Path) -> tuple[object, ...]:
    save_state(State(Plan(target)), folder)
    return "--resume", "--out", folder


@pytest.mark.parametrize("save", [save_schedule, save_campaign])
def test_a_schedule_and_a_campaign_choose_no_code(
    save: Callable[[str, Path], tuple[object, ...]], strangers_code: str, tmp_path: Path
) -> None:
    options = save(strangers_code, tmp_path)
    said = refusal("fuzz", *options)
    assert "is Python code" in said and f"--target {strangers_code}" in said
    assert "not 'reference'" in refusal("fuzz", "--target", "reference", *options)
    assert not Path("was-here").exists()
    run("fuzz", "--target", strangers_code, *options)
    assert Path("was-here").exists()  # the test sees what it is about


@pytest.mark.parametrize(
    "signature", ['"""\nimport os\nos.abort()\n"""', "\\", "x\rimport os\n\x0cimport os\u2028import os", '"']
)
def test_a_finding_writes_no_code_of_others_into_its_test(tmp_path: Path, signature: str) -> None:
    schedule = Schedule(target='a"""b\nimport os', settings={'"""': '"""\n'}, acts=(Act(do="open"),))
    found = Found(1, Played(schedule, None, None, 0, Trouble("crash", signature, signature)))
    tree = ast.parse((leave(found, tmp_path) / "test_finding.py").read_text())
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {f"kvproof.conformance.fuzz.{name}" for name in ("finding_folder", "schedule")}
    assert {getattr(node, "module", None) for node in imported} == modules
    said = [node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "TARGET"]  # type: ignore[attr-defined]
    assert [*map(ast.literal_eval, said)] == [schedule.target]


def test_what_numba_compiled_is_not_taken_from_a_folder_that_others_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kvproof.conformance.compiled.build import _kept

    path = tmp_path / "cache" / "rules" / "rules.py"
    assert _kept(path, "x = 1") == path
    for folder in (path.parent, path.parent.parent):
        folder.chmod(0o777)
        assert _kept(path, "x = 1") != path
        folder.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(path.parent, 12345, 12345)
        monkeypatch.setattr(os, "geteuid", lambda: 1)
        assert _kept(path, "x = 1") != path


# --- files that are read as a whole -------------------------------------------------------------------------------------


def campaign(folder: Path, **changes: Any) -> None:
    """The state of a campaign with one finding, changed."""
    pytest.importorskip("torch")
    trouble = Trouble("crash", "s", "s")
    of_one = Plan("reference").campaign(target_named("reference"), 0)
    of_one.found["s"] = Found(1, Played(Schedule(target="reference"), None, None, 0, trouble))
    save_state(State(Plan("reference"), [campaign_as_data(of_one)], {"s": 1}), folder)
    data = json.loads((folder / STATE).read_text())
    for place, value in changes.items():
        inner: Any = data
        *folders, last = place.split("__")
        for name in folders:
            inner = inner[int(name) if name.isdecimal() else name]
        inner[last] = value
    (folder / STATE).write_text(json.dumps(data))


def gone_on_with(folder: Path) -> Any:
    return campaigns_of(load_state(folder), target_named("reference"), folder)


def test_the_campaign_of_these_tests_can_be_gone_on_with(tmp_path: Path) -> None:
    campaign(tmp_path)
    assert gone_on_with(tmp_path)[0].found["s"].number == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"jobs__0__found__0__number": "../../../there"},
        {"jobs__0__found__0__number": -1},
        {"jobs__0__found__0__times": 2**64},
        {"numbers": {"s": "../there"}},
        {"numbers": {"s": 1.5}},
        {"jobs__0__job": 7},
        {"jobs__0__elapsed": float("inf")},
        {"jobs__0__elapsed": 1e400},
        {"jobs__0__seconds": float("nan")},
        {"jobs__0__steps": 1e400},
        {"growth": [["<script>", 0, 0, 0, 0, 0, 0, 0]]},
        {"growth": [[1e30, 0, 0, 0, 0, 0, 0, 0]]},
        {"growth": [[1]]},
        {"settings": {"rows": [1]}},
        {"profile": {}},
        {"seed": "1"},
        {"jobs__0__found__0__played__trouble__kind": []},
        {"jobs__0__found__0__played__trouble": None},
    ],
    ids=json.dumps,
)
def test_a_campaign_is_as_kvproof_writes_it_or_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    campaign(tmp_path, **changes)
    with pytest.raises(UserError, match=r"campaign\.json: not "):
        gone_on_with(tmp_path)


def resume(path: Path) -> object:
    (trace := path.with_name("t.jsonl")).write_bytes(A_TRACE)
    return replay(trace, checkpoints=Checkpoints(path), resume=True)


READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "schedule": ("schedule.json", Schedule.load),
    "campaign": (STATE, lambda path: load_state(path.parent)),
    "checkpoint": ("c.json", resume),
    "expected": (EXPECTED, lambda path: list(kept_in(path.parent))),
    "accepted": ("accepted.txt", accepted_in),
    "workload": ("w.jsonl", read_workload),
}


@pytest.mark.parametrize("name", [name for name in READERS if name != "expected"])  # a device is no expectation
def test_a_file_that_is_endless_is_refused_before_it_is_read(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, read = READERS[name]
    (path := tmp_path / file).symlink_to("/dev/zero")
    for module in ("replay.checkpoint", "fuzz.campaign_state"):
        monkeypatch.setattr(f"kvproof.conformance.{module}.LARGE", 2**20)
    with pytest.raises(UserError, match=r"larger than \d+ MiB|longer than \d+ bytes"):
        read(path)


@pytest.mark.parametrize("name", [name for name in READERS if name != "accepted"])
@pytest.mark.parametrize(
    "text", [DEEP, '{"a":' * 50_000, "NaN", "1e999", "\0", "\ud800", '"\\ud800"', "9" * 5000], ids=lambda t: t[:8]
)
def test_what_is_no_data_of_ours_is_refused_in_one_sentence(tmp_path: Path, name: str, text: str) -> None:
    file, read = READERS[name]
    (tmp_path / "t.jsonl").write_bytes(A_TRACE)  # what a folder of traces expects is of one
    (path := tmp_path / file).write_bytes(text.encode("utf-8", "surrogatepass"))
    said = refused(read, path)
    assert "\n" not in said and len(said) < 1000


@pytest.mark.parametrize(
    ("number", "value"),
    [
        *((data_file.count, value) for value in (-1, True, 2**63, 1.0, "1")),
        *((data_file.seconds, value) for value in (-1, float("inf"), float("nan"), "1", True, 10**400)),
        *((data_file.text, value) for value in (None, 1, b"x", ["x"])),
    ],
)
def test_a_number_that_is_none_is_refused(number: Callable[[Any], object], value: object) -> None:
    with pytest.raises(ValueError, match=r"is not|is negative"):
        number(value)


def test_the_page_of_an_endless_campaign_is_drawn(tmp_path: Path) -> None:
    sample = {
        "seconds": 2.0**62,
        **dict.fromkeys(("schedules", "steps", "actions", "branches", "invariants", "states", "found"), 2**62),
    }
    numbers = dict.fromkeys(("seed", "jobs", "died", "schedules", "steps", "events", "steps_per_second", "seconds"), 0)
    page = summary_page({**numbers, "target": "x", "faults": [], "settings": {}, "found": [], "growth": [sample]})
    assert page.count("<text") < 100


# --- answers that are kept -----------------------------------------------------------------------------------------------


def test_a_kept_answer_of_another_shape_is_worked_out_anew(tmp_path: Path) -> None:
    for forged in (3, "x", [], {}, [[]], {"a": "b"}, {"a": 10**400}):
        store = Store(tmp_path / repr(forged))
        asker = Remembering(store)
        asker.recall("what", lambda kept=forged: kept, TypeAdapter(Any))  # type: ignore[misc]  # the forged answer is in the store
        assert asker.recall("what", lambda: Walk(7, {}), TypeAdapter(Walk)) == Walk(7, {})


def test_a_kept_answer_has_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    store.write("ab", "x" * 1000)
    assert store.read("ab") == "x" * 1000
    monkeypatch.setattr("kvproof.model.cache.MOST_BYTES", 500)
    assert store.read("ab") is None


# --- workloads -----------------------------------------------------------------------------------------------------------

ROW = {"timestamp": 0, "input_length": 10, "output_length": 2, "hash_ids": [1, 2, 3]}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({**ROW, "input_length": MOST_TOKENS + 1}, "input_length must be a whole number of 1 to 16777216"),
        ({**ROW, "output_length": 10**300}, "output_length must be a whole number of 1 to"),
        ({**ROW, "timestamp": 10**300}, "timestamp must be a whole number of 0 to"),
        ({**ROW, "hash_ids": [1.5] * 1000}, "hash_ids must be a list of whole numbers"),
        ({"\x1b[31m" * 1000: 1}, "missing timestamp"),
    ],
)
def test_a_workload_asks_for_no_more_than_a_server_has(tmp_path: Path, line: Any, said: str) -> None:
    (path := tmp_path / "w.jsonl").write_text(json.dumps(line))
    message = refused(read_workload, path)
    assert said in message and len(message) < 700


@pytest.mark.parametrize("cell", ["9" * 5000, "٣", "9" * 17, "1e3", '"' + "9" * 200_000, "\0"], ids=lambda c: c[:4])
def test_a_cell_of_an_azure_row_is_a_number_or_refused(tmp_path: Path, cell: str) -> None:
    (path := tmp_path / "w.csv").write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,{cell},3\n")
    message = refused(read_workload, path)
    assert message.startswith(f"{path}:2: ") and len(message) < 300


def test_a_line_of_a_workload_has_an_end(tmp_path: Path) -> None:
    (path := tmp_path / "w.jsonl").write_bytes(json.dumps(ROW).encode() + b"\n" + b" " * (LONGEST_LINE + 1))
    assert f"{path}:2: the line is longer than" in refused(read_workload, path)


def test_a_row_takes_time_by_its_length_alone(tmp_path: Path) -> None:
    """Rows of 100,000 blocks: to compare each with every shorter one would take minutes."""
    blocks = list(range(100_000))
    rows = [{**ROW, "hash_ids": [*blocks, n]} for n in range(5)]
    (path := tmp_path / "w.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert [request.session for request in read_workload(path)] == ["c1"] * 5


# --- what is shown -------------------------------------------------------------------------------------------------------

EVIL = "s\x1b]0;owned\x07\x9b31m\r\n::error::owned\n\u202e"


def test_a_name_is_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.text import Text

    from kvproof.conformance.report.terminal import complain, note, out, print_table, say

    def table(text: str) -> None:
        print_table(["a"], [[text]])

    for show in (say, complain, note, table, lambda text: out().print(Text(text, "red"))):
        show(EVIL)
        written = "".join(capsys.readouterr())
        assert written.count("\n") == 1 and not set("\x1b\x07\x9b\r\u202e") & set(written)
        assert "␛]0;owned" in written


def test_no_line_of_a_verdict_is_a_stranger_s(tmp_path: Path) -> None:
    """What a CI job reads as a command of its own begins a line with two colons."""
    header = HEADER.model_copy(
        update={"spec": EVIL, "gaps": (EVIL,), "producer": Producer(name=EVIL, version=EVIL, target=EVIL)}
    )
    turn = {"action": "create", "session": EVIL, "turn": EVIL, "params": {EVIL: 1}, "alloc": (1, 2)}
    path = written(tmp_path / "t.jsonl", [{"action": "open", "session": EVIL}, turn], header)
    for command in (("replay", path), ("info", path), ("explain", path), ("replay", "--quiet", path)):
        result = run(*command)
        assert result.exit_code in (0, 1, 2), result.output
        assert "Traceback" not in result.output
        assert not set("\x1b\x07\x9b\r\u202e") & set(result.output)
        assert not any(line.lstrip().startswith("::") for line in result.output.splitlines())
