"""`kvproof fuzz --target sglang`: the seed faults of an old release are found and named, and what is left of a finding works."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from command_line import completed, of_its_own
from repository import DOCS, ROOT
from sglang_process import ENVIRONMENT, RELEASES, called, run_with_sglang, site_of

from kvproof.spec.faults import FAULTS

OLD, NEW = RELEASES
CHECKED_FOR = "nothing wrong any more"


def fuzz(release: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [ENVIRONMENT / "bin" / "kvproof", "fuzz", *arguments]
    return completed(command, env={**os.environ, "PYTHONPATH": str(site_of(release))}, timeout=400)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What twenty seconds find in the release before the seed fixes."""
    folder = tmp_path_factory.mktemp("fuzz")
    done = fuzz(OLD, "--target", "sglang", "--seconds", "20", "--seed", "1", "--quiet", "--out", str(folder))
    assert done.returncode == 1, done.stdout + done.stderr
    return folder


def places_of(folder: Path) -> dict[str, Path]:
    """Of each fault that was named the first folder."""
    places: dict[str, Path] = {}
    for one in json.loads((folder / "summary.json").read_text())["found"]:
        for fault in one["faults"]:
            places.setdefault(fault, folder / str(one["number"]))
    return places


def play(release: str, schedule: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    return fuzz(release, "--replay", str(schedule), "--out", str(tmp_path))


@pytest.mark.sglang
def test_seed_faults_of_the_old_release_are_found_and_named(found: Path) -> None:
    named = places_of(found)
    assert {"S0510e", "F22213", "F22790e"} <= set(named)
    for place in named.values():
        files = {path.name for path in place.iterdir()}
        assert files >= {"schedule.json", "trace.jsonl", "report.txt", "test_finding.py"}


@pytest.mark.sglang
@pytest.mark.parametrize("fault", ["S0510e", "F22213"])
def test_a_finding_fails_on_the_faulty_release_and_passes_on_the_fixed_one(found: Path, fault: str) -> None:
    test = places_of(found)[fault] / "test_finding.py"
    passes = f"import runpy; runpy.run_path({str(test)!r}, run_name='__main__')"
    fails = f"try:\n    {passes}\nexcept AssertionError as error:\n    print(error)\nelse:\n    raise SystemExit(9)"
    assert fault in run_with_sglang(OLD, "-c", fails)
    run_with_sglang(NEW, "-c", passes)


@pytest.mark.sglang
def test_a_finding_is_played_again(found: Path, tmp_path: Path) -> None:
    place = places_of(found)["S0510e"]
    again = play(OLD, place, tmp_path)
    assert again.returncode == 1
    assert "S0510e" in again.stdout
    fixed = play(NEW, place, tmp_path)
    assert fixed.returncode == 0, fixed.stdout
    assert CHECKED_FOR in fixed.stdout


@pytest.mark.sglang
def test_each_schedule_has_a_scheduler_as_if_it_were_the_first() -> None:
    """One schedule, in a process of its own and after others of other settings, tells the same events."""
    told = called(NEW, "drive_fuzzed:told_again")
    assert len(told) == 5 and all(events > 20 and is_same for events, is_same in told)


@pytest.mark.parametrize(
    "release",
    [pytest.param(NEW, marks=pytest.mark.sglang), pytest.param("0.5.20", marks=pytest.mark.sglang_full)],
)
def test_a_release_that_says_that_a_session_holds_kv_and_none_does_is_noticed(release: str) -> None:
    """It would leave out the check of its tree."""
    found = called(release, "drive_fuzzed:holders")
    assert found == ["nothing", "it says that a session holds KV, and 0 do"]


@pytest.mark.sglang
def test_no_fault_can_be_turned_on_in_real_sglang(tmp_path: Path) -> None:
    done = fuzz(NEW, "--target", "sglang", "--fault", "F22862a", "--seconds", "1", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "another release" in done.stderr


def test_without_sglang_it_says_what_to_do(tmp_path: Path) -> None:
    done = completed(of_its_own("fuzz", "--target", "sglang", "--out", tmp_path))
    assert done.returncode == 2
    assert "SGLang is not installed" in done.stderr and "make test-sglang" in done.stderr


def test_what_was_found_without_a_name_is_told_in_words() -> None:
    """Each signature of the kill matrix over releases, and of releases that were adopted, begins as some row of the page does."""
    page = (DOCS / "fuzzing.md").read_text().partition("<!-- signatures -->")[2]
    rows = [line.split(" | ")[0] for line in page.splitlines() if line.startswith("| `")]
    begins = re.findall("`([^`]+)`", " ".join(rows))
    matrix = (ROOT / "benchmarks" / "results" / "fuzz_releases.md").read_text().splitlines()
    adopted = json.loads(Path(__file__).with_name("adopted.json").read_text())
    found = {line.split(" | ")[1] for line in matrix if line.startswith("| 0.")}
    found.update(signature for row in adopted.values() for signature in row["found"])
    unnamed = {signature for signature in found if signature not in FAULTS}
    assert len(found) > len(unnamed) > 5
    assert {signature for signature in unnamed if not signature.startswith(tuple(begins))} == set()


OPEN, TURN, STEP, ABORT = {"do": "open"}, {"do": "turn"}, {"do": "step"}, {"do": "abort"}
NEWEST = "0.5.23"


@pytest.mark.sglang
@pytest.mark.parametrize(
    ("settings", "acts", "code", "said"),
    [
        pytest.param({}, [OPEN, TURN, TURN, ABORT], 1, "S0511c", id="the abort of a refused turn clears the marker"),
        pytest.param(
            {"overlap": True, "chunk": "page"},
            [{"do": "send", "new_tokens": 3}, STEP, STEP, ABORT],
            0,
            CHECKED_FOR,
            id="an abort between chunks is behind results that nobody told",
        ),
        pytest.param(
            {"page_size": 64, "pool": "hopeless"},
            [OPEN, TURN | {"new_tokens": 64}, STEP, TURN | {"new_tokens": 128}],
            0,
            CHECKED_FOR,
            id="a turn for which no page is left is cut to no output",
        ),
        pytest.param(
            {"pool": "hopeless", "window": "page", "window_pool": "tight", "page_size": 4},
            [OPEN],
            2,
            "refuses",
            id="settings that the release refuses are no finding",
        ),
    ],
)
def test_what_the_newest_release_does(
    tmp_path: Path, settings: dict[str, object], acts: list[dict[str, object]], code: int, said: str
) -> None:
    schedule = {"kvproof_schedule": 1, "target": "sglang", "profile": "auto", "settings": settings, "acts": acts}
    place = tmp_path / "schedule.json"
    place.write_text(json.dumps(schedule))
    done = play(NEWEST, place, tmp_path / "again")
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout + done.stderr
