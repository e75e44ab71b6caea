"""The KV in the pages is the KV of the tokens: what sessions answer equals a computation without any cache."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from engine import drain
from paged_rows import prompt

from kvproof.impl.config import EngineConfig
from kvproof.impl.pools import RowPool
from kvproof.impl.scheduler import Scheduler
from kvproof.impl.transformer_runner import Transformer, TransformerRunner, logits_from_scratch

TOLERANCE = 1e-4


class LoggingRunner(TransformerRunner):
    """Keeps the logits behind every sampled token."""

    def __init__(self, config: EngineConfig, rows: RowPool) -> None:
        super().__init__(config, rows)
        self.seen: list[torch.Tensor] = []

    def sample(self, logits: torch.Tensor) -> torch.Tensor:
        self.seen.append(logits)
        return super().sample(logits)


def engine(**settings: object) -> tuple[Scheduler, LoggingRunner]:
    config = EngineConfig(**{"pool_pages": 400, "row_width": 200, **settings})  # type: ignore[arg-type]
    scheduler = Scheduler(config)
    runner = LoggingRunner(config, scheduler.state.rows)
    scheduler.runner = runner
    return scheduler, runner


def assert_follows(runner: LoggingRunner, tokens: list[int], output: Sequence[int]) -> None:
    """Each output token is the most likely one after all before it, by logits that the cached run computed as well."""
    full = [*tokens, *output]
    scratch = logits_from_scratch(runner.model, full[:-1])[len(tokens) - 1 :]
    assert scratch.argmax(dim=-1).tolist() == list(output)
    seen = torch.cat(runner.seen)
    for logits in scratch:
        assert float((seen - logits).abs().amax(dim=1).min()) < TOLERANCE


WAYS_TO_RUN: dict[str, dict[str, object]] = {
    "plainly": {},
    "in chunks": {"chunked_prefill_size": 16},
    "retracting late": {"retract_after_prepare": True},
    "in chunks, retracting late": {"chunked_prefill_size": 16, "retract_after_prepare": True},
    "overlapping": {"overlap": True},
    "mixing": {"overlap": True, "chunked_prefill_size": 16, "mixed_chunk": True},
    "drafting by model": {"speculation": 1, "drafts": 3, "drafter": "model"},
    "drafting by n-gram": {"speculation": 1, "drafts": 3, "drafter": "ngram"},
    "drafting by n-gram and overlapping": {"speculation": 2, "drafts": 3, "drafter": "ngram", "overlap": True},
    "drafting and overlapping": {"speculation": 2, "drafts": 3, "overlap": True, "chunked_prefill_size": 16},
    "without a tree": {"radix_cache": False},
    "with latent attention": {"attention": "mla", "speculation": 2, "drafts": 2, "overlap": True},
}


@pytest.mark.parametrize("way", WAYS_TO_RUN)
@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_turns_answer_as_a_computation_from_scratch_does(page_size: int, way: str) -> None:
    scheduler, runner = engine(page_size=page_size, **WAYS_TO_RUN[way])
    history: dict[str, list[int]] = {"a": [], "b": []}
    for session in history:
        scheduler.open_session(session)
    for turn, new_len in enumerate((37, 5, 18, 1)):
        sent = {session: history[session] + prompt(10 * turn + ord(session), new_len) for session in history}
        ordinary = prompt(99, 20 + turn)
        for session, tokens in sent.items():
            scheduler.submit_turn(session, f"{session}{turn}", tokens[len(history[session]) :], 7)
        scheduler.submit(f"o{turn}", ordinary, 6)
        for step in range(1000):
            if scheduler.is_idle:
                break
            scheduler.step()
            if step in (8, 11) and scheduler.state.running:
                scheduler.retract(scheduler.state.running[step % len(scheduler.state.running)].rid)
        for session, tokens in sent.items():
            output = scheduler.outcomes[f"{session}{turn}"].output_ids
            assert len(output) == 7
            assert_follows(runner, tokens, output)
            history[session] = [*tokens, *output]
        assert_follows(runner, ordinary, scheduler.outcomes[f"o{turn}"].output_ids)


def test_after_an_abort_the_next_turn_answers_from_the_last_success() -> None:
    scheduler, runner = engine(page_size=4)
    scheduler.open_session("s")
    first, aborted, third = prompt(1, 11), prompt(2, 9), prompt(3, 6)
    scheduler.submit_turn("s", "1", first, 5)
    drain(scheduler)
    scheduler.submit_turn("s", "2", aborted, 9)
    for _ in range(4):
        scheduler.step()
    scheduler.abort("2")
    scheduler.submit_turn("s", "3", third, 5)
    drain(scheduler)
    history = [*first, *scheduler.outcomes["1"].output_ids]
    assert_follows(runner, [*history, *third], scheduler.outcomes["3"].output_ids)


@pytest.mark.parametrize("fault", ["F22790d", "F22862b"])
def test_faults_that_corrupt_what_a_turn_reads_show_in_its_answers(fault: str) -> None:
    """A retracted turn whose shared page was freed, and a turn built on aborted tokens, answer something else."""
    answers = []
    for faults in ((), (fault,)):
        scheduler, _ = engine(page_size=4, retract_after_prepare=True, faults=faults, pool_pages=40)
        scheduler.open_session("s")
        scheduler.submit_turn("s", "1", prompt(1, 11), 5)
        drain(scheduler)
        scheduler.submit_turn("s", "2", prompt(2, 6), 12)
        for _ in range(2):  # then 23 of 24 positions are kept: the last page is a partly kept one
            scheduler.step()
        scheduler.retract("2")
        for n in range(3):
            scheduler.submit(f"o{n}", prompt(50 + n, 13), 9)
        if fault == "F22790d":
            scheduler.abort("2")
            scheduler.submit_turn("s", "3", prompt(4, 3), 8)
        drain(scheduler)
        answers.append(scheduler.outcomes["3" if fault == "F22790d" else "2"].output_ids)
    assert answers[0] != answers[1]


def test_the_same_seed_makes_the_same_model() -> None:
    first, second = (logits_from_scratch(Transformer(7), [1, 2, 3]) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, logits_from_scratch(Transformer(8), [1, 2, 3]))
