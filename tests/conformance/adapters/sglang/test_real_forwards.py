"""Real forwards: on a CUDA device where there is one, and said so where there is none."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from sglang_process import RELEASES, run_with_sglang

from kvproof.conformance.adapters.sglang import engine
from kvproof.conformance.adapters.sglang.record import settings_for
from kvproof.conformance.adapters.sglang.scenarios import SCENARIOS
from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.replay import CONFORMS, replay

NEW = RELEASES[1]


@pytest.mark.sglang
def test_real_forwards_conform_and_the_script_says_where_they_ran(tmp_path: Path) -> None:
    output = run_with_sglang(NEW, str(Path(__file__).with_name("record_on_device.py")), str(tmp_path)).splitlines()
    traces = sorted(tmp_path.glob("*/*.jsonl.gz"))
    device = traces[0].parent.name
    (where,) = (line for line in output if line.startswith("on "))
    assert ("there is no CUDA device here" in where) == (device == "cpu")
    assert len(traces) > 4 and all(replay(trace).verdict == CONFORMS for trace in traces)
    assert sum(line.startswith("CONFORMS") for line in output) == len(traces)


@pytest.mark.sglang
def test_a_real_forward_makes_the_tokens() -> None:
    """The same prompt twice gives the same answer, which made-up tokens do not."""
    script = """
from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.settings import Settings
for real in (True, False):
    with Headless(Settings(real_forward=real)) as h:
        for name in ("a", "b"):
            h.send_tokens(name, [5, 6, 7, 8], 6)
            h.drain()
        replies = [reply for reply in h.replies if hasattr(reply, "output_ids")]
        answers = {rid: ids for reply in replies for rid, ids in zip(reply.rids, reply.output_ids) if ids}
        print(real, answers["a"] == answers["b"])
"""
    assert run_with_sglang(NEW, "-c", script).splitlines()[-2:] == ["True True", "False False"]


def test_a_device_that_is_not_there_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="there is no CUDA device here"):
        engine.import_sglang("cuda")
    with pytest.raises(UserError, match=r"setting device of sglang: .* 'cpu' or 'cuda', found 'tpu'"):
        settings_for(SCENARIOS["basic"], 4, 0, {"device": "tpu"})


def test_a_process_has_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_settled", ["cuda"])
    with pytest.raises(UserError, match="this process has imported SGLang for cuda"):
        engine.import_sglang("cpu")


def test_the_script_is_the_one_that_make_runs() -> None:
    makefile = (Path(__file__).parents[4] / "Makefile").read_text()
    script = "tests/conformance/adapters/sglang/record_on_device.py"
    assert script in makefile.partition("test-sglang-gpu: ##")[2].partition("\n\n")[0]
    assert importlib.util.spec_from_file_location("script", script) is not None
