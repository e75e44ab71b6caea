"""One forward over the paged KV: which tokens run, where their KV goes, and the buffers of the layers that write and read it.

Shapes: B requests, T tokens of all of them, M pages of the longest row, P positions per page.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvproof.impl.attention import Attention
from kvproof.impl.transformer import Transformer
from kvproof.kernels.paged import PagedKV, paged_decode_attention, paged_extend_attention


@dataclass(frozen=True)
class PageTables:
    """The pages of B rows [B, M], of the full pool and, where the model has a sliding window, of the window pool."""

    full: torch.Tensor
    window: torch.Tensor | None
    page_size: int

    def of(self, window: int) -> torch.Tensor:
        if not window:
            return self.full
        assert self.window is not None  # the runner of a model with a window has its map
        return self.window

    def from_request(self, first: int) -> PageTables:
        return PageTables(self.full[first:], None if self.window is None else self.window[first:], self.page_size)


@dataclass(frozen=True)
class ForwardBatch:
    """The tokens of one forward, one request after another: positions [prefix_lens[b], seq_lens[b]) of request b."""

    token_ids: torch.Tensor
    positions: torch.Tensor
    request_of_token: torch.Tensor
    prefix_lens: torch.Tensor
    seq_lens: torch.Tensor
    tables: PageTables

    @classmethod
    def of_last_tokens(cls, token_ids: torch.Tensor, positions: torch.Tensor, tables: PageTables) -> ForwardBatch:
        """One token of each request, at the end of what it has."""
        requests = torch.arange(len(token_ids), device=token_ids.device)
        return cls(token_ids, positions, requests, positions, positions + 1, tables)

    @property
    def has_one_token_each(self) -> bool:
        return len(self.token_ids) == len(self.seq_lens)

    def kv_indices(self, window: int) -> torch.Tensor:
        """Where each token's KV goes [T]. Behind the end of a row is padding: page 0."""
        page_size = self.tables.page_size
        pages = self.tables.of(window)[self.request_of_token, self.positions // page_size]
        return pages.long() * page_size + self.positions % page_size


class PagedLayers:
    """The first layers of a transformer with their KV buffers: a layer with a sliding window has them in the window pool."""

    def __init__(self, model: Transformer, layers: int, pool_pages: int, window_pages: int, page_size: int) -> None:
        self._model = model
        self._count = layers
        self.buffers = [
            layer.attention.new_buffers(
                ((window_pages if layer.attention.window else pool_pages) + 1) * page_size, model.device
            )
            for layer in model.layers[:layers]
        ]
        """Of each layer, one line per KV index. The lines of page 0 are padding."""

    def hidden(self, batch: ForwardBatch) -> torch.Tensor:
        """Write the KV of the batch's tokens; what the layers make of them, [T, HIDDEN]."""

        def attend(index: int, attention: Attention, x: torch.Tensor) -> torch.Tensor:
            q, entries = attention.project(x, batch.positions)
            attention.store(self.buffers[index], entries, batch.kv_indices(attention.window))
            return attention.merge(self._attend(index, attention, q, batch))

        return self._model.hidden(batch.token_ids, attend, self._count)

    def _attend(self, index: int, attention: Attention, q: torch.Tensor, batch: ForwardBatch) -> torch.Tensor:
        keys, values = self.buffers[index][0], self.buffers[index][-1]
        tables = batch.tables
        kv = PagedKV(keys, values, tables.of(attention.window), batch.seq_lens, tables.page_size)
        if batch.has_one_token_each:
            return paged_decode_attention(q, kv, attention.scale, attention.window)
        return paged_extend_attention(q, kv, batch.prefix_lens, attention.scale, attention.window)
