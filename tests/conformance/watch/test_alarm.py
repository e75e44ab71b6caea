"""The alarm tells each violation to a command, and nothing that the command does stops the watch."""

from __future__ import annotations

import fcntl
import json
import os
import select
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kvproof.conformance.errors import UserError
from kvproof.conformance.watch import alarm as watch_alarm
from kvproof.conformance.watch.alarm import Alarm

FINDING: dict[str, Any] = {
    "trace": "out/live.jsonl",
    "line": 12,
    "seq": 10,
    "action": "extend",
    "ledger": "session s",
    "invariants": {"I1": "one owner", "I4": "whole pages"},
    "explained_by": ["F22862b"],
}


class Told(list[str]):
    def __call__(self, text: str) -> None:
        self.append(text)


def python(tmp_path: Path, program: str) -> str:
    path = tmp_path / "alarm.py"
    path.write_text(program)
    return f"'{sys.executable}' '{path}' '{tmp_path}'"


def test_a_finding_comes_on_stdin_and_in_the_environment(tmp_path: Path) -> None:
    command = python(
        tmp_path,
        "import json, os, pathlib, sys\n"
        "seen = {k: v for k, v in os.environ.items() if k.startswith('KVPROOF_ALARM_')}\n"
        "pathlib.Path(sys.argv[1], 'told.json').write_text(json.dumps([json.load(sys.stdin), seen]))\n",
    )
    told = Told()
    alarm = Alarm(command, told)
    alarm.ring(FINDING)
    alarm.close()
    finding, environment = json.loads((tmp_path / "told.json").read_text())
    assert finding == FINDING
    assert environment == {
        "KVPROOF_ALARM_TRACE": "out/live.jsonl",
        "KVPROOF_ALARM_LINE": "12",
        "KVPROOF_ALARM_SEQ": "10",
        "KVPROOF_ALARM_ACTION": "extend",
        "KVPROOF_ALARM_LEDGER": "session s",
        "KVPROOF_ALARM_INVARIANTS": "I1 I4",
        "KVPROOF_ALARM_EXPLAINED_BY": "F22862b",
    }
    assert (told, alarm.run, alarm.failed) == ([], 1, 0)


def test_it_runs_once_for_each_finding(tmp_path: Path) -> None:
    command = python(tmp_path, "import sys, pathlib\npathlib.Path(sys.argv[1], 'n').open('a').write('x')\n")
    alarm = Alarm(command, Told())
    for _ in range(3):
        alarm.ring(FINDING)
    alarm.close()
    assert (tmp_path / "n").read_text() == "xxx"


def test_no_shell_reads_the_command(tmp_path: Path) -> None:
    told = Told()
    alarm = Alarm(f"true; touch {tmp_path}/made", told)
    alarm.ring(FINDING)
    alarm.close()
    assert not (tmp_path / "made").exists()
    assert told == ["alarm: true;: No such file or directory"]


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import sys; sys.exit(7)", "exited with 7"),
        ("import sys; print('the pager is down', file=sys.stderr); sys.exit(1)", "exited with 1: the pager is down"),
        ("import os; os.kill(os.getpid(), 9)", "exited with -9"),
        ("import os; os.close(0)\nraise SystemExit(0)", None),
    ],
)
def test_a_failure_is_told_and_the_next_finding_is_told_as_well(tmp_path: Path, program: str, said: str | None) -> None:
    told = Told()
    alarm = Alarm(python(tmp_path, program), told)
    alarm.ring(FINDING)
    alarm.ring(FINDING)
    alarm.close()
    assert alarm.run == 2
    assert len(told) == (2 if said else 0) and all(said is not None and said in text for text in told)


def test_one_that_hangs_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    (tmp_path / "alarm.sh").write_text('sleep 3600 & echo $! > "$1"; wait\n')
    told = Told()
    alarm = Alarm(f"sh '{tmp_path / 'alarm.sh'}' '{tmp_path / 'child'}'", told, seconds=2.0)
    alarm.ring(FINDING)
    alarm.close()
    assert len(told) == 1 and "did not end within 2 s and was killed" in told[0]
    with suppress(ProcessLookupError):  # it is not even in the table any more
        ended, _, _ = select.select([os.pidfd_open(int((tmp_path / "child").read_text()))], [], [], 60)
        assert ended


def test_findings_that_come_faster_than_it_runs_are_counted_and_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_alarm, "MOST_WAITING", 2)
    told = Told()
    program = "import fcntl, pathlib, sys\nfcntl.flock(pathlib.Path(sys.argv[1], 'lock').open(), fcntl.LOCK_SH)\n"
    alarm = Alarm(python(tmp_path, program), told)
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the first run waits for it
        for _ in range(20):
            alarm.ring(FINDING)
    alarm.close()
    assert alarm.dropped >= 17 and alarm.run + alarm.dropped == 20
    assert len(told) == 1 and "faster than it runs" in told[0]


@pytest.mark.parametrize(("command", "said"), [("", "needs a command"), ("'open", "No closing quotation")])
def test_a_command_that_is_none_is_refused(command: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        Alarm(command, Told())
