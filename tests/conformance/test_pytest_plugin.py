"""`@kvproof.conformance(...)` and `kvproof_recorder`: red where something is wrong, green and without a trace where not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command_line import completed

pytest.importorskip("torch")
pytest_plugins = "pytester"

RECORDED = """
from kvproof.conformance.adapters.reference import header_of
from kvproof.impl.config import EngineConfig
from kvproof.impl.scheduler import Scheduler

def test_it(kvproof_recorder):
    config = EngineConfig(forward="none", overlap=True, speculation=2, faults=FAULTS)
    kvproof_recorder.begin(header_of(config))
    scheduler = Scheduler(config, kvproof_recorder)
    scheduler.open_session("s")
    for turn in ("r0", "r1"):
        scheduler.submit_turn("s", turn, [5], 1)
        for _ in range(3):
            scheduler.launch_step()
            scheduler.take_results()
    kvproof_recorder.check()
"""


def assert_played(pytester: pytest.Pytester, source: str, **outcomes: int) -> pytest.RunResult:
    """A test file that was run, with these outcomes."""
    pytester.makepyfile(source)
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(**outcomes)
    return result


def marked(options: str, body: str = "pass", mark: str = "kvproof.conformance") -> str:
    return f"import kvproof, pytest\n\n@{mark}({options})\ndef test_it(): {body}\n"


def test_a_fuzzed_target_without_a_mistake_is_green(pytester: pytest.Pytester) -> None:
    options = 'target="reference", seconds=1, seed=3, settings={"page_size": 4}'
    ran = "ran = []\n" + marked(options, "ran.append(1)") + "def test_the_test_itself_ran(): assert ran\n"
    assert_played(pytester, ran, passed=2)


def test_a_fuzzed_target_with_a_mistake_is_red_and_says_how_to_see_it(pytester: pytest.Pytester) -> None:
    options = 'target="reference", seconds=15, faults=["F22862a"]'
    result = assert_played(pytester, marked(options, "raise NotImplementedError"), failed=1)
    result.stdout.fnmatch_lines(["*explained by*F22862a*", "*kvproof fuzz --replay *"])
    assert "NotImplementedError" not in result.stdout.str()
    (place,) = pytester.path.glob("out/kvproof/*test_it/1")
    assert (place / "test_finding.py").exists() and str(place) in result.stdout.str()


@pytest.mark.parametrize(("fault", "outcome"), [("", "passed"), ("F22862b", "failed")])
def test_a_scenario_is_played_with_the_checks_on(pytester: pytest.Pytester, fault: str, outcome: str) -> None:
    result = assert_played(pytester, marked(f'scenario="retract", faults={[fault] if fault else []}'), **{outcome: 1})
    assert (fault in result.stdout.str()) and len(list(pytester.path.glob("out/kvproof/*/*.jsonl"))) == bool(fault)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ('target="refernce"', "did you mean"),
        ('target="no_such_module:factory"', "there is no module"),
        ('settings={"page_sise": 4}', "page_size"),
        ('scenario="retrakt"', "did you mean"),
        ('target="x:y", scenario="retract"', "unknown target with scenarios"),
        ('"reference"', "takes its options by name"),
    ],
)
def test_a_mistake_of_the_user_is_named(pytester: pytest.Pytester, options: str, said: str) -> None:
    mark = "kvproof.conformance" if "=" in options else "pytest.mark.kvproof_conformance"
    result = assert_played(pytester, marked(options, mark=mark), failed=1)
    assert said in result.stdout.str() and "Traceback" not in result.stdout.str()


def test_the_trace_of_a_test_that_passes_is_removed(pytester: pytest.Pytester) -> None:
    assert_played(pytester, "FAULTS = ()" + RECORDED, passed=1)
    assert not (pytester.path / "out").exists()


def test_the_trace_of_a_test_that_fails_is_kept_and_named(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nkvproof_dir = kept")
    result = assert_played(pytester, "FAULTS = ('F22862a',)" + RECORDED, failed=1)
    (trace,) = pytester.path.glob("kept/*/trace.jsonl")
    result.stdout.fnmatch_lines([f"trace: {trace}", f"kvproof replay {trace}"])
    assert "F22862a" in result.stdout.str()


def test_an_event_before_the_header_is_refused(pytester: pytest.Pytester) -> None:
    result = assert_played(pytester, "def test_it(kvproof_recorder): kvproof_recorder(object())", failed=1)
    assert "begin(header) comes before the first event" in result.stdout.str()


def test_it_costs_nothing_where_it_is_not_used() -> None:
    heavy = ("torch", "z3", "hypothesis", "numpy", "pydantic", "typer", "rich")
    script = f"import sys, kvproof.conformance.pytest_plugin; print([n for n in {heavy} if n in sys.modules])"
    done = completed([sys.executable, "-c", script])
    assert done.stdout == "[]\n"


def test_pytest_finds_it_by_itself(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "--markers", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = completed(command, cwd=tmp_path)
    assert "@pytest.mark.kvproof_conformance" in done.stdout
