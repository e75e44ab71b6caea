"""The GPU benchmark runs, says so where there is no device, and writes what it found."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import gpu
import gpu_figures as figures
import pytest
import torch
from repository import ROOT

# Not importorskip: the tests of the kernels choose Triton's interpreter before anything imports it.
pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no triton")

SCRIPT = ROOT / "benchmarks" / "gpu.py"


def run(*options: str) -> str:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "200"}
    command = [sys.executable, str(SCRIPT), *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_without_a_device_it_says_so_in_one_line() -> None:
    assert run() == "skipped: no CUDA device\n"


def test_a_smoke_run_goes_through_every_part_and_judges_nothing() -> None:
    before = sorted((SCRIPT.parent / "results").iterdir())
    said = run("--smoke")
    parts = ("census, page size 64", "torch.unique", "alloc_extend", "decode attention", "extend attention", "ring")
    for part in (*parts, "recorded and counted", "engine step, batch 4, launched"):
        assert part in said
    assert "of the floor" not in said
    assert sorted((SCRIPT.parent / "results").iterdir()) == before


def test_a_figure_is_held_against_the_floor_and_its_target() -> None:
    bench = figures.Bench(torch.device("cpu"), figures.Sizes(), repeats=3)
    bench.bytes_per_us = 1000.0
    slow = bench.add("slow", [99.0, 100.0, 180.0], bytes_moved=50_000, share=0.6)
    assert (slow.median_us, slow.floor_us, slow.share_of_floor, slow.met) == (100.0, 50.0, 0.5, False)
    assert (slow.fastest_us, slow.slowest_us, slow.target) == (99.0, 180.0, "60% of the floor")
    assert bench.add("fast", [70.0], bytes_moved=50_000, share=0.6).met
    assert bench.add("quick", [19.0], most_us=20).met
    assert bench.add("composed", [2000.0], times_of=slow).met
    assert bench.add("composed well", [1999.0], times_of=slow).met is False
    written = json.loads(json.dumps(figures.result(bench, "A Card 3000")))
    assert written["device"] == "A Card 3000"
    assert [figure["name"] for figure in written["figures"]] == ["slow", "fast", "quick", "composed", "composed well"]
    assert figures.slug("NVIDIA H100 80GB (SXM)") == "nvidia-h100-80gb-sxm"


def test_the_result_file_holds_every_figure_and_the_fields_that_the_page_names(tmp_path: Path) -> None:
    bench = figures.Bench(torch.device("cpu"), figures.SMOKE, repeats=1)
    gpu.measure(bench)
    path = figures.write(bench, "NVIDIA H100 80GB (SXM)", tmp_path / "results")
    assert path == tmp_path / "results" / "nvidia-h100-80gb-sxm.json"
    written = json.loads(path.read_text())
    page = (SCRIPT.parents[1] / "docs" / "kernels.md").read_text().partition("## The result file")[2]
    of_run, of_figure = page.split("for each")
    documented = set(re.findall(r"`(\w+)`", of_run))
    assert set(written) == documented | {"figures"}
    assert all(set(figure) == set(re.findall(r"`(\w+)`", of_figure)) for figure in written["figures"])
    assert [figure["name"] for figure in written["figures"]] == [figure.name for figure in bench.figures]
    assert len(written["figures"]) > 20 and all(figure["median_us"] > 0 for figure in written["figures"])
    assert written["sizes"]["batch"] == 4 and (written["device"], written["cuda"]) == ("NVIDIA H100 80GB (SXM)", None)
    assert written["arrangement"] == figures.ARRANGEMENT_OF_RESULTS and written["bytes_per_us"] > 0


def test_the_floor_counts_a_sector_for_an_entry_that_is_alone_in_it() -> None:
    bench = figures.Bench(torch.device("cpu"), figures.SMOKE, repeats=1)
    lists = 4 * (300 // 10 + 300 - 30 * 8 - 30) + 12 * 8
    assert gpu.entry_bytes(gpu.healthy_pool(bench, 1)) == lists + 240 * 4
    assert gpu.entry_bytes(gpu.healthy_pool(bench, 4)) == lists + 240 * 16
    assert gpu.entry_bytes(gpu.healthy_pool(bench, 64)) == lists + 240 * 32
