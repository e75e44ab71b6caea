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


def program(folder: Path, text: str) -> str:
    """The command that runs a program with its folder."""
    (folder / "alarm.py").write_text(text)
    return f"'{sys.executable}' '{folder / 'alarm.py'}' '{folder}'"


def rung(command: str, times: int = 1, **options: Any) -> tuple[Alarm, list[str]]:
    """An alarm that was rung so often and is over, and what it said."""
    said: list[str] = []
    alarm = Alarm(command, said.append, **options)
    for _ in range(times):
        alarm.ring(FINDING)
    alarm.close()
    return alarm, said


def test_each_finding_comes_on_stdin_and_in_the_environment(tmp_path: Path) -> None:
    text = (
        "import json, os, pathlib, sys\n"
        "seen = {k: v for k, v in os.environ.items() if k.startswith('KVPROOF_ALARM_')}\n"
        "pathlib.Path(sys.argv[1], 'told').open('a').write(json.dumps([json.load(sys.stdin), seen]) + '\\n')\n"
    )
    alarm, said = rung(program(tmp_path, text), times=3)
    first, *others = map(json.loads, (tmp_path / "told").read_text().splitlines())
    assert first == [
        FINDING,
        {
            "KVPROOF_ALARM_TRACE": "out/live.jsonl",
            "KVPROOF_ALARM_LINE": "12",
            "KVPROOF_ALARM_SEQ": "10",
            "KVPROOF_ALARM_ACTION": "extend",
            "KVPROOF_ALARM_LEDGER": "session s",
            "KVPROOF_ALARM_INVARIANTS": "I1 I4",
            "KVPROOF_ALARM_EXPLAINED_BY": "F22862b",
        },
    ]
    assert others == [first, first]
    assert (said, alarm.run, alarm.failed) == ([], 3, 0)


def test_no_shell_reads_the_command(tmp_path: Path) -> None:
    _, said = rung(f"true; touch {tmp_path}/made")
    assert not (tmp_path / "made").exists()
    assert said == ["alarm: true;: No such file or directory"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import sys; sys.exit(7)", "exited with 7"),
        ("import sys; print('the pager is down', file=sys.stderr); sys.exit(1)", "exited with 1: the pager is down"),
        ("import os; os.kill(os.getpid(), 9)", "exited with -9"),
    ],
)
def test_a_failure_is_told_and_the_next_finding_is_told_as_well(tmp_path: Path, text: str, told: str) -> None:
    alarm, said = rung(program(tmp_path, text), times=2)
    assert alarm.run == len(said) == 2 and all(told in line for line in said)


def test_a_command_that_reads_nothing_is_no_failure(tmp_path: Path) -> None:
    alarm, said = rung(program(tmp_path, "import os; os.close(0)"), times=2)
    assert (alarm.run, said) == (2, [])


def test_one_that_hangs_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    (tmp_path / "alarm.sh").write_text('sleep 3600 & echo $! > "$1"; wait\n')
    _, said = rung(f"sh '{tmp_path / 'alarm.sh'}' '{tmp_path / 'child'}'", seconds=2.0)
    assert len(said) == 1 and "did not end within 2 s and was killed" in said[0]
    with suppress(ProcessLookupError):  # it is not even in the table any more
        ended, _, _ = select.select([os.pidfd_open(int((tmp_path / "child").read_text()))], [], [], 60)
        assert ended


def test_findings_that_come_faster_than_it_runs_are_counted_and_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_alarm, "MOST_WAITING", 2)
    said: list[str] = []
    text = "import fcntl, pathlib, sys\nfcntl.flock(pathlib.Path(sys.argv[1], 'lock').open(), fcntl.LOCK_SH)\n"
    alarm = Alarm(program(tmp_path, text), said.append)
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the first run waits for it
        for _ in range(20):
            alarm.ring(FINDING)
    alarm.close()
    assert alarm.dropped >= 17 and alarm.run + alarm.dropped == 20
    assert len(said) == 1 and "faster than it runs" in said[0]


@pytest.mark.parametrize(("command", "said"), [("", "needs a command"), ("'open", "No closing quotation")])
def test_a_command_that_is_none_is_refused(command: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        rung(command)
