"""Servers that were given the same trace path: each has a trace of its own, and none notices another."""

from __future__ import annotations

import logging
import os
import subprocess
from pathlib import Path

import pytest
from live_traces import wait_until_written
from sglang_process import ENVIRONMENT, RELEASES, site_of

from kvproof.conformance.adapters.live import live_trace
from kvproof.conformance.adapters.sglang import capture
from kvproof.conformance.replay.replay import CONFORMS, replay

DRIVER = Path(__file__).with_name("drive_served.py")
SCENARIO = "many-sessions"
SECONDS = 120.0


def start(release: str, trace: Path | None) -> subprocess.Popen[str]:
    """A process with the scheduler of a server, ready to serve."""
    site = {"PYTHONPATH": str(site_of(release)), "KVPROOF_TRACE": str(trace or "")}
    return subprocess.Popen(
        [str(ENVIRONMENT / "bin" / "python"), "-W", "ignore", str(DRIVER), SCENARIO],
        env={**os.environ, **site},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.sglang
def test_two_servers_with_one_path_write_two_whole_traces(tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    servers = [start(RELEASES[1], trace) for trace in (path, path, None)]
    try:
        for server in servers:
            assert "ready\n" in iter(server.stdout.readline, ""), "it ended before it was ready"
        for server in servers:  # all at once, so that they run beside one another
            server.stdin.write("\n")
            server.stdin.flush()
        ends = [server.communicate(timeout=SECONDS) for server in servers]
    finally:
        for server in servers:
            server.kill()
    assert [server.returncode for server in servers] == [0, 0, 0], ends
    first, second, unrecorded = (output.splitlines()[-1] for output, _ in ends)
    assert first == second == unrecorded and first.startswith('["finished"')

    (other,) = {path.with_name(f"live.{server.pid}.jsonl") for server in servers[:2]} & set(tmp_path.iterdir())
    assert set(tmp_path.iterdir()) == {path, other}
    for trace in (path, other):
        wait_until_written(trace, SECONDS)
        assert replay(trace).verdict == CONFORMS
    assert path.read_bytes() == other.read_bytes(), "the same run, twice"
    (said,) = [error for _, error in ends if "is there already and stays as it is" in error]
    assert f"this server's trace is {other}" in said


def test_a_name_that_is_taken_is_never_touched_and_the_next_is_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A container gives a server that is started again the same process id, so that name too may be taken."""
    wanted, made = tmp_path / "a" / "live.jsonl.gz", []
    wanted.parent.mkdir()
    wanted.write_text("of an earlier run")
    with caplog.at_level(logging.WARNING, "kvproof"):
        for _ in range(3):
            path, file = live_trace.new_file(str(wanted), None)
            assert live_trace.is_being_written(path)
            os.close(file)
            assert not live_trace.is_being_written(path)
            made.append(path.name)
    own = os.getpid()
    assert made == [f"live.{own}.jsonl.gz", f"live.{own}-2.jsonl.gz", f"live.{own}-3.jsonl.gz"]
    assert wanted.read_text() == "of an earlier run"
    for name, said in zip(made, caplog.messages, strict=True):
        assert f"this server's trace is {wanted.with_name(name)}" in said


@pytest.mark.parametrize(
    ("wanted", "rank", "name"),
    [
        ("t.jsonl", None, "t.jsonl"),
        ("t.jsonl", "dp0-tp1", "t.dp0-tp1.jsonl"),
        ("t-{rank}.jsonl", "dp0-tp1", "t-dp0-tp1.jsonl"),
        ("t-{rank}-{pid}.jsonl", None, "t-0-{pid}.jsonl"),
    ],
)
def test_name_of_the_trace(tmp_path: Path, wanted: str, rank: str | None, name: str) -> None:
    path, file = live_trace.new_file(str(tmp_path / wanted), rank)
    os.close(file)
    assert path == tmp_path / name.format(pid=os.getpid())


def test_where_all_names_are_taken_nothing_is_recorded_and_the_server_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(live_trace, "MOST_NAMES", 1)
    for name in ("installed_release", "header_of", "_settings", "rank_of"):
        monkeypatch.setattr(capture, name, lambda *args, **kwargs: None)
    taken = tmp_path / "live.jsonl"
    taken.touch()
    monkeypatch.setenv(live_trace.PATH_VARIABLE, str(taken))
    with caplog.at_level(logging.WARNING, "kvproof"):
        assert capture.record_event_loop(lambda scheduler: "served", object()) == "served"
    (said,) = caplog.messages
    assert said.startswith("kvproof records nothing: ") and "live.jsonl is there already" in said
