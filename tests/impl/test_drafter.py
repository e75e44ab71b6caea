"""Drafters guess what they should, and their KV lives in the pages of the target."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from paged_rows import PagedRows, prompt

from kvproof.impl.drafter import ModelDrafter, NGramDrafter
from kvproof.impl.paged_forward import PageTables

NO_TABLES = PageTables(torch.zeros(1, 1, dtype=torch.int32), None, 1)
LONGEST_MATCH = 3


def guesses(history: list[list[int]], drafts: int, stale: int = 9) -> list[list[int]]:
    """Of rows of any lengths, with stale tokens behind them."""
    width = max(map(len, history)) + 4
    padded = torch.tensor([row + [stale] * (width - len(row)) for row in history])
    seq_lens = torch.tensor([len(row) - 1 for row in history])
    return NGramDrafter(LONGEST_MATCH).propose(padded, seq_lens, NO_TABLES, drafts).tolist()


def looked_up(row: list[int], drafts: int) -> list[int]:
    """The same token by token: the latest earlier place where the longest end of the row stands."""
    for length in range(min(LONGEST_MATCH, len(row) - 1), -1, -1):
        for end in range(len(row) - 1, max(length, 1) - 1, -1):
            if row[end - length : end] == row[len(row) - length :]:
                row = list(row)
                for step in range(drafts):
                    row.append(row[end + step])
                return row[-drafts:]
    return [row[-1]] * drafts


class TestNGramDrafter:
    def test_what_followed_before_is_guessed_again(self) -> None:
        assert guesses([[1, 2, 3, 4, 5, 1, 2, 3]], 2) == [[4, 5]]

    def test_of_equal_matches_the_latest_counts(self) -> None:
        assert guesses([[1, 2, 7, 1, 2, 8, 1, 2]], 1) == [[8]]

    def test_a_longer_match_counts_more_than_a_later_one(self) -> None:
        assert guesses([[5, 1, 2, 7, 6, 2, 8, 5, 1, 2]], 1) == [[7]]

    def test_a_match_that_runs_into_the_end_is_a_period(self) -> None:
        assert guesses([[1, 2, 3, 1, 2, 3, 1]], 7) == [[2, 3, 1, 2, 3, 1, 2]]

    def test_stale_tokens_are_never_looked_at(self) -> None:
        assert guesses([[9, 1, 4, 4], [6, 9]], 3) == [[4, 4, 4], [9, 9, 9]]

    @given(st.lists(st.lists(st.integers(1, 3), min_size=2, max_size=14), min_size=1, max_size=4), st.integers(1, 5))
    def test_it_equals_a_search_token_by_token(self, history: list[list[int]], drafts: int) -> None:
        assert guesses(history, drafts, stale=1) == [looked_up(row, drafts) for row in history]


def accepted_share(seeds: int, rounds: int, **settings: Any) -> float:
    """Of first drafts, the share that the target agrees with."""
    accepted = 0
    for seed in range(seeds):
        rows = PagedRows(seed=seed, speculation=1, drafts=1, **settings)
        rows.prefill([prompt(seed, 20)])
        accepted += sum(len(rows.runner.launch((), [1], 1).tokens()[0]) > 1 for _ in range(rounds))
    return accepted / (rounds * seeds)


@pytest.mark.parametrize("attention", ["gqa", "mla"])
def test_the_first_layer_guesses_about_every_second_token(attention: str) -> None:
    """The docstring of LATER_LAYERS says so: useful, and never so good that nothing is rejected."""
    assert 0.3 < accepted_share(8, 40, attention=attention) < 0.8


@pytest.mark.parametrize("attention", ["gqa", "mla"])
def test_drafts_are_what_the_first_layer_alone_would_say(attention: str) -> None:
    rows = PagedRows(attention=attention, speculation=1, drafts=4)
    drafter, model, tokens = rows.runner._drafter, rows.runner.model, prompt(5, 30)
    assert isinstance(drafter, ModelDrafter)
    tokens += rows.prefill([tokens])[0]
    tables = PageTables(rows.pages[:1].to(torch.int32), None, rows.page_size)
    drafts = drafter.propose(torch.tensor([tokens]), torch.tensor([30]), tables, 4)[0].tolist()
    for draft in drafts:
        positions = torch.arange(len(tokens))
        hidden = model.hidden(torch.tensor(tokens), lambda _, attend, x, at=positions: attend.whole(x, at), layers=1)
        assert draft == int(model.logits(hidden[-1]).argmax())
        tokens.append(draft)


def test_text_that_repeats_itself_is_looked_up() -> None:
    """A random model soon runs in circles: then the n-gram drafter is right as well."""
    assert accepted_share(4, 99, width=400, drafter="ngram") > 0.15


def test_clobbered_drafter_kv_costs_acceptance_and_changes_no_token() -> None:
    tokens = [prompt(3, 48)]
    expected = PagedRows(8, rows=1).generate(tokens, 60)
    accept_lens = []
    for is_clobbered in (False, True):
        rows = PagedRows(8, rows=1, speculation=1, drafts=3)
        drafter = rows.runner._drafter
        assert isinstance(drafter, ModelDrafter)
        [output] = rows.prefill(tokens)
        rounds = 0
        while len(output) < 60:
            if is_clobbered:
                for page in rows.pages[0].tolist():
                    rows.clobber(drafter.layers.buffers[0], page)
            output += rows.runner.launch((), [1], 3).tokens()[0]
            rounds += 1
        assert [output[:60]] == expected
        accept_lens.append(60 / rounds)
    assert accept_lens[1] < accept_lens[0]


def test_the_kv_of_accepted_and_of_plain_tokens_is_where_the_target_has_its_own() -> None:
    """The first layer is the same in both models, so its KV is as well, in every page, whatever was rejected between."""
    rows = PagedRows(4, speculation=1, drafts=3)
    prompts = [prompt(seed, 9 + seed) for seed in range(4)]
    outputs = rows.generate(prompts, 20, drafts=3)
    outputs = rows.decode(outputs, 25)
    drafter = rows.runner._drafter
    assert isinstance(drafter, ModelDrafter)
    for target, own in zip(rows.runner.layers.buffers[0], drafter.layers.buffers[0], strict=True):
        for row, tokens in enumerate(prompts, 1):
            lines = rows.kv_indices(row)[: len(tokens) + 24].long()
            assert torch.allclose(target[lines], own[lines], atol=1e-5)
            assert float(own[lines].abs().sum(dim=(1, 2)).min()) > 0
