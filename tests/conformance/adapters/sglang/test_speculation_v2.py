"""Which positions of a round are committed in a trace, whether a release counts them at once or later."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from live_traces import wait_until_written
from sglang_process import ENVIRONMENT, often_and_in_full, site_of
from sglang_verdicts import BY_PROFILE, verdict_of

from kvproof.conformance.adapters.sglang.speculation_v2 import Rounds
from kvproof.conformance.replay.rules_of_trace import OF_THE_TRACE

SERVED = Path(__file__).with_name("drive_served.py")
SCENARIO = "matrix-speculation"


class Turn:
    """A request of a release that counts the position of a round when it is launched (`at_once`), or with its result."""

    def __init__(self, rid: str, at_once: bool) -> None:
        self.rid, self._at_once = rid, at_once
        self.lengths = [10, 10, 8]

    def prepare(self, allocated: int) -> None:
        self.lengths[0] += self._at_once
        self.lengths[1] = max(allocated, self.lengths[1])

    def gain(self, tokens: int) -> None:
        self.lengths[0] += tokens - self._at_once


def rounds_of() -> Rounds:
    release: Any = SimpleNamespace(lengths=lambda owners: [tuple(owner.lengths) for owner in owners])
    return Rounds(release)


def launch(rounds: Rounds, turn: Turn, allocated: int) -> tuple[int, int]:
    rounds.come(SimpleNamespace(reqs=[turn]))
    turn.prepare(allocated)
    return rounds.launched([turn])[0]


def gain(rounds: Rounds, turn: Turn, tokens: int) -> None:
    rounds.results_come(SimpleNamespace(reqs=[turn]), SimpleNamespace(accept_lens=[tokens]))
    turn.gain(tokens)


def committed(rounds: Rounds, turn: Turn) -> int:
    return rounds.lengths([turn])[0][0]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_launched_round_has_its_position_whenever_it_is_counted(at_once: bool) -> None:
    rounds, turn = rounds_of(), Turn("a", at_once)
    assert committed(rounds, turn) == 10
    assert launch(rounds, turn, 16) == (10, 16)
    assert committed(rounds, turn) == 11
    assert launch(rounds, turn, 17) == (16, 17)
    assert committed(rounds, turn) == 12
    gain(rounds, turn, 3)
    assert committed(rounds, turn) == 14
    gain(rounds, turn, 1)
    assert committed(rounds, turn) == 14
    gain(rounds, turn, 1)  # of a round that nobody saw
    assert committed(rounds, turn) == turn.lengths[0]


def test_the_result_of_a_prefill_is_of_no_round() -> None:
    rounds, turn = rounds_of(), Turn("a", at_once=False)
    launch(rounds, turn, 16)
    rounds.results_come(SimpleNamespace(reqs=[turn]), SimpleNamespace(accept_lens=None))
    rounds.results_come(SimpleNamespace(reqs=[turn]), SimpleNamespace())
    assert committed(rounds, turn) == 11


def test_what_is_in_flight_of_a_request_that_is_over_is_dropped() -> None:
    rounds, turn, other = rounds_of(), Turn("a", at_once=False), Turn("b", at_once=False)
    launch(rounds, turn, 16)
    launch(rounds, other, 16)
    rounds.over("a")
    assert (committed(rounds, turn), committed(rounds, other)) == (10, 11)


@pytest.mark.parametrize("release", often_and_in_full(("0.5.23",)))
def test_a_server_is_recorded_as_the_driver_is(release: str, tmp_path: Path) -> None:
    """By the plugin, with all that a server's recording goes through."""
    trace = tmp_path / "served.jsonl"
    site = {"PYTHONPATH": str(site_of(release)), "KVPROOF_TRACE": str(trace)}
    subprocess.run(
        [str(ENVIRONMENT / "bin" / "python"), "-W", "ignore", str(SERVED), SCENARIO],
        env={**os.environ, **site},
        input="\n",
        text=True,
        check=True,
        timeout=120,
    )
    wait_until_written(trace, 60)
    expected = json.loads(BY_PROFILE.read_text())[release][SCENARIO]["4"]
    assert verdict_of(trace, OF_THE_TRACE) == expected
