"""Forwards: what is launched is what comes back, with drafts or without, in any batch, and from the right pages."""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import interpreted_runner
import pytest
import torch
from command_line import completed
from paged_rows import PagedRows, prompt

from kvproof.impl.config import ConfigError
from kvproof.impl.runner import ForwardInput, HashRunner
from kvproof.impl.transformer_runner import Transformer, TransformerRunner, logits_from_scratch

PROMPTS = [prompt(seed, count) for seed, count in enumerate((1, 7, 16, 41))]
ATTENTIONS = ["gqa", "mla"]
DRAFTERS = ["model", "ngram"]
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def assert_greedy(model: Transformer, prompts: Sequence[list[int]], outputs: Sequence[list[int]]) -> None:
    for tokens, output in zip(prompts, outputs, strict=True):
        scratch = logits_from_scratch(model, [*tokens, *output[:-1]])[len(tokens) - 1 :]
        assert scratch.argmax(dim=-1).tolist() == output


class TestHashRunner:
    def launched(self, drafts: int, draft_accuracy: float = 0.6) -> tuple[list[list[int]], Counter[int]]:
        runner = HashRunner(5, draft_accuracy)
        outputs = runner.launch([ForwardInput(row, 0, [row, 2, 3]) for row in range(1, 9)]).tokens()
        accept_lens: Counter[int] = Counter()
        for _ in range(100):
            for output, tokens in zip(outputs, runner.launch((), range(1, 9), drafts).tokens(), strict=True):
                accept_lens[len(tokens)] += 1
                output += tokens
        return outputs, accept_lens

    def test_drafts_change_no_token(self) -> None:
        plain, _ = self.launched(0)
        drafted, _ = self.launched(3)
        assert [output[:101] for output in drafted] == plain

    def test_every_accept_length_occurs(self) -> None:
        _, accept_lens = self.launched(3)
        assert set(accept_lens) == {1, 2, 3, 4}
        assert 0.55 < 1 - accept_lens[1] / accept_lens.total() < 0.65

    @pytest.mark.parametrize(("accuracy", "length"), [(0.0, 1), (1.0, 4)])
    def test_drafts_that_are_never_or_always_right(self, accuracy: float, length: int) -> None:
        assert set(self.launched(3, accuracy)[1]) == {length}

    def test_a_prefix_from_elsewhere_changes_nothing(self) -> None:
        whole = HashRunner(0).launch([ForwardInput(1, 0, [4, 5, 6])]).tokens()
        assert HashRunner(0).launch([ForwardInput(1, 2, [4, 5, 6])]).tokens() == whole


def places(*page_sizes: int, window: int = 0) -> list[Any]:
    """Page size, window and device: the CPU at each of these sizes, a CUDA device, where there is one, at 4."""
    return [*((size, window, "cpu") for size in page_sizes), pytest.param(4, window, "cuda", marks=needs_cuda)]


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize(("page_size", "window", "device"), [*places(1, 4, 16, 256), *places(1, 4, 16, window=10)])
def test_greedy_decoding_equals_a_computation_from_scratch(
    page_size: int, window: int, device: str, attention: str
) -> None:
    rows = PagedRows(page_size, window=window, attention=attention, device=device)
    assert_greedy(rows.runner.model, PROMPTS, rows.generate(PROMPTS, 40))


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize(
    ("seed", "device"), [*((n, "cpu") for n in range(4)), pytest.param(0, "cuda", marks=needs_cuda)]
)
def test_speculation_answers_as_plain_decoding_does(seed: int, device: str, attention: str, drafter: str) -> None:
    """Over page borders, and with rejected tails that are overwritten, since acceptance is about one half."""
    settings = {"seed": seed, "attention": attention, "device": device}
    plain = PagedRows(4, **settings).generate(PROMPTS, 40)
    for page_size, drafts in ((1, 1), (4, 3), (16, 5), (256, 2)):
        rows = PagedRows(page_size, speculation=1, drafts=drafts, drafter=drafter, **settings)
        assert rows.generate(PROMPTS, 40, drafts) == plain


def test_rounds_with_and_without_drafts_may_alternate() -> None:
    plain = PagedRows().generate(PROMPTS, 60)
    rows = PagedRows(speculation=1, drafts=4)
    outputs = rows.prefill(PROMPTS)
    for round_number in range(30):
        rows.decode(outputs, min(map(len, outputs)) + 1, drafts=round_number % 5)
    assert all(output == expected[: len(output)] for output, expected in zip(outputs, plain, strict=True))


@pytest.mark.parametrize("drafts", [0, 3])
def test_the_next_step_is_launched_before_the_last_one_is_read(drafts: int) -> None:
    plain = PagedRows().generate(PROMPTS, 50)
    rows = PagedRows(speculation=1, drafts=3)
    launches = [rows.runner.launch([ForwardInput(row, 0, tokens) for row, tokens in enumerate(PROMPTS, 1)])]
    launches += [rows.runner.launch((), range(1, 5), drafts) for _ in range(20)]
    for row, expected in enumerate(plain):
        output = [token for launch in launches for token in launch.tokens()[row]]
        assert output[:21] == expected[:21]
        assert output == expected[: len(output)] or len(output) > 50


def test_a_row_may_change_as_soon_as_the_launch_is_there() -> None:
    """With an engine that overlaps, the pages of a row can go to somebody else before the forward has run."""
    rows = PagedRows()
    expected = PagedRows().generate(PROMPTS, 3)
    first = rows.prefill(PROMPTS)
    second = rows.runner.launch((), range(1, 5))
    kept = rows.pool.req_to_token.clone()
    rows.pool.req_to_token.zero_()
    tokens = second.tokens()
    rows.pool.req_to_token.copy_(kept)
    third = rows.runner.launch((), range(1, 5)).tokens()
    assert [a + b + c for a, b, c in zip(first, tokens, third, strict=True)] == expected


def test_a_mixed_batch_answers_as_separate_ones_do() -> None:
    plain = PagedRows().generate(PROMPTS, 12)
    for seed in range(6):
        draw = random.Random(seed)
        rows = PagedRows(speculation=1, drafts=3)
        outputs: list[list[int]] = [[] for _ in PROMPTS]
        prefilled = [0] * len(PROMPTS)
        while min(map(len, outputs)) < 12:
            extend, decode = [], []
            for index, tokens in enumerate(PROMPTS):
                if prefilled[index] == len(tokens):
                    decode.append(index)
                elif draw.random() < 0.5:
                    end = draw.randint(prefilled[index] + 1, len(tokens))
                    extend.append((index, ForwardInput(index + 1, prefilled[index], tokens[:end])))
                    prefilled[index] = end
            launch = rows.runner.launch(
                [item for _, item in extend], [n + 1 for n in decode], drafts=draw.randint(0, 3)
            )
            result = launch.tokens()
            for (index, item), tokens in zip(extend, result, strict=False):
                if item.seq_len == len(PROMPTS[index]):
                    outputs[index] += tokens
            for index, tokens in zip(decode, result[len(extend) :], strict=True):
                outputs[index] += tokens
        assert [output[:12] for output in outputs] == plain


def test_requests_go_on_in_other_rows_after_a_retract() -> None:
    """What the rows' last launch gave is read late: it is dropped, and means nothing to the rows' new requests."""
    expected = PagedRows().generate(PROMPTS[2:], 40)
    rows = PagedRows(speculation=1, drafts=3)
    outputs = rows.generate(PROMPTS[2:], 10, drafts=3)
    late = [rows.runner.launch((), [1, 2], 3) for _ in range(2)]
    outputs.reverse()
    moved = [[*tokens, *output] for tokens, output in zip((PROMPTS[3], PROMPTS[2]), outputs, strict=True)]
    again = rows.runner.launch([ForwardInput(row, 0, tokens) for row, tokens in enumerate(moved, 1)])
    assert all(len(tokens) > 0 for launch in late for tokens in launch.tokens())
    for output, tokens in zip(outputs, rows.decode(again.tokens(), 30, drafts=3), strict=True):
        output += tokens
    assert [output[:40] for output in reversed(outputs)] == expected


def test_pages_that_a_forward_reads_are_bounded_by_what_the_host_knows_of_the_lengths() -> None:
    """Once all results are read, the bound is the length: else tables would grow by all drafts, also by rejected ones."""
    rows = PagedRows(speculation=1, drafts=3)
    outputs = rows.generate(PROMPTS, 20, drafts=3)
    again = rows.runner.launch((), [1, 2], 3).tokens()
    rows.decode(outputs, 21)
    bounds = [rows.runner._bounds[row].longest for row in range(1, 5)]
    assert bounds == rows.runner._seq_lens[1:].tolist()
    assert len(again) == 2


def test_an_empty_launch_has_no_tokens() -> None:
    assert PagedRows().runner.launch().tokens() == []


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_one_clobbered_page_shows_in_the_output(attention: str) -> None:
    """Whichever page of the prompt it is: each output depends on the KV of every position before it."""
    tokens = [prompt(8, 48)]
    expected = PagedRows(8, rows=1, attention=attention).generate(tokens, 30)
    for position in range(0, 48, 8):
        rows = PagedRows(8, rows=1, attention=attention)
        outputs = rows.prefill(tokens)
        for buffers in rows.runner.layers.buffers:
            rows.clobber(buffers, rows.page(1, position))
        assert rows.decode(outputs, 30) != expected


def test_pages_of_others_do_not_show_in_the_output() -> None:
    expected = PagedRows(8).generate(PROMPTS, 30)
    rows = PagedRows(8)
    outputs = rows.prefill(PROMPTS)
    foreign = set(range(rows.pool_pages + 1)) - set(rows.pages.flatten().tolist())
    for page in foreign:
        for buffers in rows.runner.layers.buffers:
            rows.clobber(buffers, page)
    assert rows.decode(outputs, 30) == expected


def test_drafts_that_the_runner_was_not_built_for_are_refused() -> None:
    with pytest.raises(ConfigError, match="2 drafts were asked for, but the runner was built for 0"):
        PagedRows().runner.launch((), [1], 2)
    with pytest.raises(ConfigError, match="4 drafts were asked for, but the runner was built for 3"):
        PagedRows(speculation=1, drafts=3).runner.launch((), [1], 4)


def test_a_window_map_of_another_pool_is_refused() -> None:
    rows = PagedRows()
    with pytest.raises(ConfigError, match=f"has 3 entries, but pages 0 to {rows.pool_pages} need"):
        TransformerRunner(rows.config, rows.pool, torch.zeros(3, dtype=torch.int32))


class TestWindow:
    """The second layer sees WINDOW tokens before each one, and has its KV in a pool of its own."""

    WINDOW = 10
    TOKENS = prompt(11, 40)

    def rows(self, **settings: object) -> PagedRows:
        return PagedRows(4, rows=1, window=self.WINDOW, **settings)

    def evict(self, rows: PagedRows, seq_len: int) -> int:
        """Take and overwrite the window pages that position seq_len no longer sees; how many there were."""
        evicted = 0
        for position in range(0, seq_len - self.WINDOW - rows.page_size + 1, rows.page_size):
            window_page = int(rows.full_to_window[rows.page(1, position)])
            if window_page:
                rows.full_to_window[rows.page(1, position)] = 0
                rows.clobber(rows.runner.layers.buffers[1], window_page)
                evicted += 1
        return evicted

    def test_it_is_exactly_as_wide_as_it_says(self) -> None:
        """In the second layer, that is: the first sees everything, so only its KV of the window layer is changed."""
        model = Transformer(0, window=self.WINDOW)
        attention, x = model.layers[1].attention, torch.randn(30, 64, generator=torch.Generator().manual_seed(0))
        positions = torch.arange(30)
        expected = attention.whole(x, positions)[-1]
        for position, is_seen in ((29 - self.WINDOW, True), (28 - self.WINDOW, False)):
            changed = x.clone()
            changed[position] += 1
            assert torch.allclose(attention.whole(changed, positions)[-1], expected, atol=1e-6) is not is_seen

    def test_a_window_changes_the_answers(self) -> None:
        assert self.rows().generate([self.TOKENS], 20) != PagedRows(4, rows=1).generate([self.TOKENS], 20)

    @pytest.mark.parametrize("attention", ATTENTIONS)
    @pytest.mark.parametrize(("drafter", "drafts"), [("model", 0), ("model", 3), ("ngram", 3)])
    def test_what_was_evicted_never_matters(self, drafter: str, drafts: int, attention: str) -> None:
        expected = self.rows(attention=attention).generate([self.TOKENS], 40)
        rows = self.rows(attention=attention, speculation=1, drafts=3, drafter=drafter)
        rows.clobber(rows.runner.layers.buffers[1], 0)
        outputs, evicted = rows.prefill([self.TOKENS]), 0
        while len(outputs[0]) < 40:
            evicted += self.evict(rows, len(self.TOKENS) + len(outputs[0]) - 1)
            rows.decode(outputs, len(outputs[0]) + 1, drafts)
        assert [outputs[0][:40]] == expected
        assert evicted > 10

    @pytest.mark.parametrize("attention", ATTENTIONS)
    def test_a_page_evicted_too_early_shows_in_the_output(self, attention: str) -> None:
        expected = self.rows(attention=attention).generate([self.TOKENS], 20)
        rows = self.rows(attention=attention)
        outputs = rows.prefill([self.TOKENS])
        while len(outputs[0]) < 20:
            self.evict(rows, len(self.TOKENS) + len(outputs[0]) - 1 + rows.page_size)
            outputs = rows.decode(outputs, len(outputs[0]) + 1)
        assert outputs != expected

    @pytest.mark.parametrize("position", [32, 36])
    def test_a_clobbered_page_inside_the_window_shows_in_the_output(self, position: int) -> None:
        expected = self.rows().generate([self.TOKENS], 20)
        rows = self.rows()
        outputs = rows.prefill([self.TOKENS])
        rows.clobber(rows.runner.layers.buffers[1], int(rows.full_to_window[rows.page(1, position)]))
        assert rows.decode(outputs, 20) != expected

    def test_the_map_is_read_at_launch(self) -> None:
        expected = self.rows().generate([self.TOKENS], 3)
        rows = self.rows()
        [output] = rows.prefill([self.TOKENS])
        launch = rows.runner.launch((), [1])
        kept = rows.full_to_window.clone()
        rows.full_to_window.zero_()
        output += launch.tokens()[0]
        rows.full_to_window.copy_(kept)
        output += rows.runner.launch((), [1]).tokens()[0]
        assert [output] == expected

    def test_a_window_without_a_map_is_refused(self) -> None:
        rows = self.rows()
        with pytest.raises(ConfigError, match="window 10 without a map"):
            TransformerRunner(rows.config, rows.pool)


@pytest.mark.skipif(find_spec("triton") is None, reason="no Triton")
@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels themselves run on the device")
def test_the_triton_kernels_give_the_same_tokens() -> None:
    """In their interpreter: shapes, strides and dtypes that the runner hands over are those that the kernels take."""
    script = Path(interpreted_runner.__file__)
    speculating = {"attention": "mla", "window": 10, "speculation": 1, "drafts": 3}
    asked = json.dumps([{"rows": 3}, {**speculating, "rows": 3}])
    run = completed([sys.executable, script, asked], env={**os.environ, "TRITON_INTERPRET": "1"})
    assert run.returncode == 0, run.stderr
    by_torch = PagedRows(rows=3), PagedRows(rows=3, attention="mla", window=10)
    wanted = [rows.generate(interpreted_runner.PROMPTS, interpreted_runner.TOKENS) for rows in by_torch]
    assert json.loads(run.stdout) == wanted


@needs_cuda
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_no_launch_waits_for_the_device(drafter: str) -> None:
    rows = PagedRows(4, speculation=1, drafts=3, drafter=drafter, device="cuda")
    rows.generate(PROMPTS, 10, 3)  # kernels are compiled
    torch.cuda.set_sync_debug_mode("error")
    try:
        launches = [rows.runner.launch([ForwardInput(1, 0, PROMPTS[3])], [2, 3, 4], 3) for _ in range(3)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(len(launch.tokens()) == 4 for launch in launches)
