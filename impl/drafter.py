"""Drafters guess the next tokens of a decoding row; the target model then verifies all guesses in one forward.

A wrong guess costs time and never changes an answer.
"""

from __future__ import annotations

from typing import Protocol

import torch

from kvproof.impl.paged_forward import ForwardBatch, PagedLayers, PageTables
from kvproof.impl.transformer import Transformer

DRAFTER_LAYERS = 1


class Drafter(Protocol):
    def propose(self, history: torch.Tensor, seq_lens: torch.Tensor, tables: PageTables, drafts: int) -> torch.Tensor:
        """`drafts` guesses [rows, drafts] for each decoding row.

        history[row, : seq_lens[row] + 1] are its tokens so far; the last of them has no KV yet, the guesses follow it.
        What history holds behind it is stale.
        """

    def follow(self, batch: ForwardBatch) -> None:
        """The target model runs these tokens; among them are drafts that may be rejected."""


class NGramDrafter:
    """What followed the last tokens when they came before: prompt lookup.

    Of the places where the longest end of the row occurs earlier (of at most `longest_match` tokens) the latest one is
    taken. What follows there may run into the row's end: then it is read as a period that continues. No match at all: the
    last token is repeated.
    """

    def __init__(self, longest_match: int = 3) -> None:
        self._longest_match = longest_match

    def propose(self, history: torch.Tensor, seq_lens: torch.Tensor, tables: PageTables, drafts: int) -> torch.Tensor:
        ends = torch.arange(history.shape[1], device=history.device)
        last = seq_lens[:, None]
        matched = torch.zeros_like(history)
        still = torch.ones_like(history, dtype=torch.bool)
        for back in range(self._longest_match):
            wanted = history.gather(1, (last - back).clamp(min=0))
            still = still & (ends >= back)[None, :] & (history.roll(back, dims=1) == wanted)
            matched = matched + still
        best = torch.where(ends[None, :] < last, matched * history.shape[1] + ends, -1).argmax(dim=1, keepdim=True)
        steps = torch.arange(drafts, device=history.device)[None, :]
        return history.gather(1, best + 1 + steps % (last - best))

    def follow(self, batch: ForwardBatch) -> None:
        """It has no state: the history that it reads is the runner's."""


class ModelDrafter:
    """A smaller transformer: the target's first layers, between the target's embedding and head.

    Its KV buffers are its own, but are addressed by the target's KV indices: a page holds the KV of both models. It follows
    every forward of the target, so the KV of accepted drafts and of the bonus is there when it drafts again.
    """

    def __init__(self, target: Transformer, pool_pages: int, page_size: int) -> None:
        self._target = target
        self.layers = PagedLayers(target, DRAFTER_LAYERS, pool_pages, 0, page_size)

    def propose(self, history: torch.Tensor, seq_lens: torch.Tensor, tables: PageTables, drafts: int) -> torch.Tensor:
        tokens = history.gather(1, seq_lens[:, None])[:, 0]
        guesses = []
        for step in range(drafts):
            batch = ForwardBatch.of_last_tokens(tokens, seq_lens + step, tables)
            tokens = self._target.logits(self.layers.hidden(batch)).argmax(dim=-1)
            guesses.append(tokens)
        return torch.stack(guesses, dim=1)

    def follow(self, batch: ForwardBatch) -> None:
        self.layers.hidden(batch)
