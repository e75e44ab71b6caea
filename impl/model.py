"""A small random transformer that reads and writes the paged KV buffers through the page table.

Two layers, grouped-query attention, rotary positions, RMSNorm. Its words mean nothing; what counts is that every output
token depends on the KV of every position before it, so a wrong page shows as a wrong token. `logits_from_scratch` computes
the same without any cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvproof.impl.config import EngineConfig
from kvproof.impl.pools import KVBuffers, RowPool
from kvproof.impl.runner import VOCAB_SIZE, ForwardInput
from kvproof.kernels.paged import paged_decode_attention, paged_kv_store

LAYERS, HEADS, KV_HEADS, HEAD_DIM = 2, 4, 2, 16
HIDDEN = HEADS * HEAD_DIM
SCALE = HEAD_DIM**-0.5
ROTARY_BASE = 10_000.0
ATTENTION_GAIN = 4.0
"""Makes what attention brings in outweigh the token itself: else a random model repeats its last token, whatever the KV."""


class Layer:
    def __init__(self, random: torch.Generator, device: str) -> None:
        def weights(rows: int, columns: int) -> torch.Tensor:
            return (torch.randn(rows, columns, generator=random) * columns**-0.5).to(device)

        self.query = weights(HEADS * HEAD_DIM, HIDDEN)
        self.key = weights(KV_HEADS * HEAD_DIM, HIDDEN)
        self.value = weights(KV_HEADS * HEAD_DIM, HIDDEN)
        self.output = weights(HIDDEN, HEADS * HEAD_DIM)
        self.up = weights(4 * HIDDEN, HIDDEN)
        self.down = weights(HIDDEN, 4 * HIDDEN)

    def qkv(self, x: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values [tokens, heads, HEAD_DIM]; queries and keys turned to their positions."""
        normed = _rms_norm(x)
        q = (normed @ self.query.T).view(-1, HEADS, HEAD_DIM)
        k = (normed @ self.key.T).view(-1, KV_HEADS, HEAD_DIM)
        v = (normed @ self.value.T).view(-1, KV_HEADS, HEAD_DIM)
        return _rotate(q, positions), _rotate(k, positions), v

    def after_attention(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        x = x + ATTENTION_GAIN * attended.reshape(-1, HEADS * HEAD_DIM) @ self.output.T
        return x + torch.nn.functional.silu(_rms_norm(x) @ self.up.T) @ self.down.T


class Transformer:
    def __init__(self, seed: int, device: str = "cpu") -> None:
        random = torch.Generator().manual_seed(seed)
        self.embedding = torch.randn(VOCAB_SIZE, HIDDEN, generator=random).to(device)
        self.layers = [Layer(random, device) for _ in range(LAYERS)]
        self.head = (torch.randn(VOCAB_SIZE, HIDDEN, generator=random) * HIDDEN**-0.5).to(device)
        self.device = device

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        return _rms_norm(x) @ self.head.T


def logits_from_scratch(model: Transformer, token_ids: Sequence[int]) -> torch.Tensor:
    """Logits [tokens, vocabulary] of a whole sequence, computed at once and without a cache."""
    positions = torch.arange(len(token_ids), device=model.device)
    x = model.embedding[torch.tensor(token_ids, device=model.device)]
    for layer in model.layers:
        q, k, v = layer.qkv(x, positions)
        x = layer.after_attention(x, _causal_attention(q, k, v))
    return model.logits(x)


class TransformerRunner:
    """Runs the transformer on the rows of the page table; the most likely token is the next one."""

    def __init__(self, config: EngineConfig, rows: RowPool) -> None:
        self.model = Transformer(config.seed, config.device)
        self.kv = KVBuffers(config.pool_pages, config.page_size, LAYERS, KV_HEADS, HEAD_DIM, config.device)
        self.page_size = config.page_size
        self._rows = rows
        self._device = config.device

    def extend(self, batch: Sequence[ForwardInput]) -> list[int]:
        """Prefill, request by request: each reads its own row, and shares nothing but the buffers."""
        return self.sample(torch.stack([self._extend_one(item) for item in batch]))

    def decode(self, batch: Sequence[ForwardInput]) -> list[int]:
        """One token of every request at once, through the paged attention kernel."""
        positions = torch.tensor([item.prefix_len for item in batch], device=self._device)
        write_to = torch.cat([self._kv_indices(item.row, item.prefix_len, _end(item)) for item in batch])
        page_table = self._page_table(batch)
        x = self.model.embedding[torch.tensor([item.token_ids[-1] for item in batch], device=self._device)]
        for layer, keys, values in zip(self.model.layers, self.kv.keys, self.kv.values, strict=True):
            q, k, v = layer.qkv(x, positions)
            paged_kv_store(keys, values, k, v, write_to)
            attended = paged_decode_attention(q, keys, values, page_table, positions + 1, self.page_size, SCALE)
            x = layer.after_attention(x, attended)
        return self.sample(self.model.logits(x))

    def sample(self, logits: torch.Tensor) -> list[int]:
        tokens: list[int] = logits.argmax(dim=-1).tolist()
        return tokens

    def _extend_one(self, item: ForwardInput) -> torch.Tensor:
        positions = torch.arange(item.prefix_len, _end(item), device=self._device)
        write_to = self._kv_indices(item.row, item.prefix_len, _end(item))
        read_from = self._kv_indices(item.row, 0, _end(item))
        x = self.model.embedding[torch.tensor(item.token_ids, device=self._device)]
        for layer, keys, values in zip(self.model.layers, self.kv.keys, self.kv.values, strict=True):
            q, k, v = layer.qkv(x, positions)
            paged_kv_store(keys, values, k, v, write_to)
            x = layer.after_attention(x, _causal_attention(q, keys[read_from], values[read_from]))
        return self.model.logits(x[-1])

    def _page_table(self, batch: Sequence[ForwardInput]) -> torch.Tensor:
        """[requests, pages of the longest]: the first KV index of each page tells the page."""
        longest = max(_end(item) for item in batch)
        rows = torch.tensor([item.row for item in batch])
        pages = self._rows.req_to_token[rows, : longest : self.page_size] // self.page_size
        return pages.contiguous().to(self._device)

    def _kv_indices(self, row: int, start: int, end: int) -> torch.Tensor:
        return self._rows.read(row, start, end).to(self._device)


def _causal_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """q [n, HEADS, D] are the last n of the m positions of k and v [m, KV_HEADS, D]; each sees itself and what is before."""
    group = HEADS // KV_HEADS
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    n, m = len(q), len(k)
    hidden = torch.ones(n, m, dtype=torch.bool, device=q.device).triu(diagonal=m - n + 1)
    scores = (torch.einsum("nhd,mhd->hnm", q, k) * SCALE).masked_fill(hidden, float("-inf"))
    return torch.einsum("hnm,mhd->nhd", scores.softmax(dim=-1), v)


def _rms_norm(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6)


def _rotate(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Rotary positions: each pair of lanes is turned by an angle that grows with the position."""
    half = x.shape[-1] // 2
    frequency = ROTARY_BASE ** (-torch.arange(half, device=x.device) / half)
    angle = (positions[:, None] * frequency)[:, None, :]
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()), dim=-1)


def _end(item: ForwardInput) -> int:
    return item.prefix_len + len(item.token_ids)
