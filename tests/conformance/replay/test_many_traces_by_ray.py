"""Replay by a Ray cluster of this machine: the answers of one process, also when a worker is killed in the middle."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import ClassVar

import command_line
import pytest
from killing import killing
from many_traces import broken, sessions
from ray_workers import workers_of

from kvproof.conformance.replay.many_traces import Options, judged
from kvproof.conformance.replay.many_traces_by_ray import judge_by_ray
from kvproof.conformance.replay.verdict import CONFORMS, Report


def test_without_ray_the_answer_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    answer = command_line.refusal("replay", sessions(tmp_path / "t.jsonl"), "--ray", "local")
    assert "pip install 'kvproof[ray]'" in answer
    assert "give one of the two" in command_line.refusal("replay", tmp_path / "t.jsonl", "--ray", "local", "--jobs", 2)


class TestOnACluster:
    pytestmark: ClassVar = [
        pytest.mark.ray,
        pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="kvproof[ray] is not installed"),
    ]

    def test_the_answers_are_those_of_one_process(self, tmp_path: Path) -> None:
        paths = [sessions(tmp_path / "a.jsonl"), broken(tmp_path / "b.jsonl"), tmp_path / "none.jsonl"]
        assert judge_by_ray(paths, Options(), "local", lambda *_: None) == [judged(p, Options()) for p in paths]

    def test_a_trace_whose_worker_is_killed_is_judged_by_another(self, tmp_path: Path) -> None:
        paths = [sessions(tmp_path / f"{n}.jsonl", 15000) for n in range(3)]
        with killing(lambda: workers_of("judge_trace")) as killed:
            answers = judge_by_ray(paths, Options(), "local", lambda *_: None)
        assert killed
        reports = [answer for answer in answers if isinstance(answer, Report)]
        assert [(r.path, r.verdict, r.events) for r in reports] == [(p, CONFORMS, 30000) for p in paths]

    def test_the_command_line_takes_a_folder_to_it(self, tmp_path: Path) -> None:
        sessions(tmp_path / "traces" / "a.jsonl")
        broken(tmp_path / "traces" / "b.jsonl")
        result = command_line.run("replay", tmp_path / "traces", "--ray", "local")
        assert result.exit_code == 1, result.output
        assert "2 traces: 1 conforms, 1 violates" in result.stdout

    def test_an_address_without_a_cluster_is_refused(self, tmp_path: Path) -> None:
        answer = command_line.refusal("replay", sessions(tmp_path / "t.jsonl"), "--ray", "127.0.0.1:1")
        assert "nobody listens there" in answer
        assert "no address; give HOST:PORT" in command_line.refusal("replay", tmp_path / "t.jsonl", "--ray", tmp_path)
