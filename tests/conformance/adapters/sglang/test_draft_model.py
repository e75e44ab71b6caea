"""SGLang's own EAGLE with a draft model of random weights: rounds reserve, drafts are accepted, and the trace says both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CalledProcessError

import pytest
from sglang_process import (
    EACH_RELEASE,
    HAVE_SPECULATION_V1,
    LATER,
    PAGE_SIZES,
    RELEASES,
    SPECULATION_V1,
    Trace,
    run_with_sglang,
)
from trace_events import read_records, write_records

from kvproof.conformance.replay.replay import replay
from kvproof.conformance.replay.rules_of_trace import OF_THE_TRACE

torch = pytest.importorskip("torch")

from kvproof.conformance.adapters.sglang import eagle_in_torch as kernels  # noqa: E402

TraceOf = Callable[[str, str, int], Trace]
OLD, NEW = RELEASES
ROUNDS = ("matrix-speculation", "matrix-speculation-window", "matrix-speculation-chunk-cache")


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("release", EACH_RELEASE)
def test_rounds_reserve_ahead_and_drafts_are_accepted(trace_of: TraceOf, release: str, page_size: int) -> None:
    trace = trace_of(release, "matrix-speculation", page_size)
    assert (trace.header.config.speculation, trace.header.config.drafts) == (2, 2)
    assert not any("speculation" in gap for gap in trace.header.gaps)
    ahead = [(event.after.kv_allocated_len or 0) - (event.after.kv_committed_len or 0) for event in trace.of("decode")]
    assert min(ahead) >= 2 and max(ahead) >= 5 and len(ahead) > 20
    tokens = [int(event.params["tokens"]) for event in trace.of("result")]
    assert {1, 2, 3} <= set(tokens) and max(tokens) == 3
    assert sum(len(event.alloc) for event in trace.of("decode")) > 10


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("scenario", ROUNDS)
@pytest.mark.parametrize("release", EACH_RELEASE)
def test_what_is_wrong_with_rounds_is_named(trace_of: TraceOf, release: str, scenario: str, page_size: int) -> None:
    report = replay(trace_of(release, scenario, page_size).path, profile=OF_THE_TRACE)
    named = {fault.id for finding in report.findings[:1] for fault in finding.explained_by}
    assert named == ({"S0510e"} if release == OLD else {"S0517a"} if release == LATER[-1] else set())


# -- version 1 --


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("release", [param for param in EACH_RELEASE if param.values[0] in HAVE_SPECULATION_V1])
def test_version_1_verifies_a_round_in_the_step_that_drafts_it(trace_of: TraceOf, release: str, page_size: int) -> None:
    trace = trace_of(release, SPECULATION_V1, page_size)
    config = trace.header.config
    assert (config.speculation, config.drafts, config.overlap) == (1, 2, False)
    rounds = trace.of("verify")
    assert not trace.of("decode") and len(rounds) > 20
    assert {int(event.params["tokens"]) for event in rounds} == {1, 2, 3}
    assert all(event.after.kv_committed_len == event.after.kv_allocated_len for event in rounds)
    # What is taken for rejected drafts goes back: one page a token, or where it opened a page.
    rejected = sum(3 - int(event.params["tokens"]) for event in rounds)
    freed = sum(len(event.free) for event in rounds)
    assert freed == rejected if page_size == 1 else 0 < freed < rejected


@pytest.mark.sglang
@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_a_rejected_draft_that_keeps_its_page_is_noticed(trace_of: TraceOf, tmp_path: Path, page_size: int) -> None:
    events = read_records(trace_of(NEW, SPECULATION_V1, page_size).path)
    at = next(place for place, event in enumerate(events) if event.get("action") == "verify" and event.get("free"))
    kept = events[at]["free"].pop()
    leaking = write_records(tmp_path / "leaking.jsonl", events)
    first = replay(leaking, profile=OF_THE_TRACE).first
    assert first is not None and first.event.seq == events[at]["seq"]
    assert any(f"page {kept} was not freed" in line for line in first.pages)


def record(release: str, scenario: str, out: Path, *settings: str) -> None:
    command = ("-m", "kvproof", "record", "--target", "sglang", "--scenario", scenario)
    asked = [word for setting in settings for word in ("--set", setting)]
    run_with_sglang(release, *command, *asked, "--out", str(out))


@pytest.mark.sglang
@pytest.mark.parametrize(
    "release, settings, words",
    [
        (LATER[-1], ("drafts=2",), "this release has no speculation v1, and v2 overlaps"),
        (NEW, ("drafts=2", "overlap=true", "real_forward=true"), "their forwards are made up, on a CPU"),
    ],
)
def test_drafts_that_cannot_be(tmp_path: Path, release: str, settings: tuple[str, ...], words: str) -> None:
    with pytest.raises((AssertionError, CalledProcessError), match=words):
        record(release, "basic", tmp_path / "t.jsonl", *settings)


@pytest.mark.sglang
@pytest.mark.parametrize("release", [NEW, LATER[-1]])
def test_rounds_need_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str) -> None:
    """A compilation takes longer than the fuzzer lets a step hang, and a machine may have nothing to compile with."""
    recorded = tmp_path / "t.jsonl"
    monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    record(release, "matrix-speculation", recorded)
    assert Trace.read(recorded).reason == "finished"


# -- kernels --


def test_each_draft_stands_behind_the_last() -> None:
    last, drafts = torch.tensor([5, 6]), torch.tensor([[10, 11], [20, 21]])
    _, positions, index, behind, siblings, tokens = kernels.chain_of_drafts(
        last, None, None, drafts, torch.tensor([7, 3]), 10, 1, 2, 3
    )
    assert tokens.tolist() == [5, 10, 11, 6, 20, 21]
    assert positions.tolist() == [7, 8, 9, 3, 4, 5]
    assert (index.tolist(), behind.tolist()) == ([[0, 1, 2], [3, 4, 5]], [[1, 2, -1], [1, 2, -1]])
    assert set(siblings.flatten().tolist()) == {-1}


@pytest.mark.parametrize(
    "said, accepted, ids", [([10, 11, 9], 2, [10, 11, 9]), ([10, 4, 9], 1, [10, 4, 0]), ([4, 11, 9], 0, [4, 0, 0])]
)
def test_drafts_are_accepted_up_to_the_first_that_the_target_does_not_say(
    said: list[int], accepted: int, ids: list[int]
) -> None:
    predicts, index, count = torch.zeros(3, dtype=torch.int32), torch.full((1, 3), -1), torch.zeros(1)
    kernels.accept_greedily(
        predicts=predicts,
        accept_index=index,
        accept_token_num=count,
        candidates=torch.tensor([[5, 10, 11]]),
        target_predict=torch.tensor([said]),
    )
    assert (predicts.tolist(), count.tolist()) == (ids, [accepted])
    assert index.tolist() == [[*range(accepted + 1), *[-1] * (2 - accepted)]]


def test_rows_are_written_and_read() -> None:
    table, rows = torch.zeros((3, 8), dtype=torch.int32), torch.tensor([2, 0])
    starts, ends = torch.tensor([1, 4]), torch.tensor([3, 7])
    kernels.write_rows(rows, table, starts, ends, torch.tensor([11, 12, 21, 22, 23]), 8)
    assert table.tolist() == [[0, 0, 0, 0, 21, 22, 23, 0], [0] * 8, [0, 11, 12, 0, 0, 0, 0, 0]]
    slots = torch.zeros(5, dtype=torch.int64)
    kernels.read_rows(rows, table, starts, ends, slots, 8)
    assert slots.tolist() == [11, 12, 21, 22, 23]
    drafts = torch.zeros(4, dtype=torch.int64)
    kernels.read_rows_for_drafts(rows, table, starts, drafts, 8, 1, 2)
    assert drafts.tolist() == [11, 12, 21, 22]
    chains = kernels.slots_of_chains(
        req_pool_indices=rows, req_to_token=table, start_offset=starts, end_offset=None, draft_token_num=3
    )
    assert chains.tolist() == [11, 12, 0, 21, 22, 23]


def test_the_last_accepted_token_of_each_request() -> None:
    last = torch.zeros(2, dtype=torch.int32)
    kernels.last_accepted(torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([2, 3]), last, 3)
    assert last.tolist() == [2, 6]
