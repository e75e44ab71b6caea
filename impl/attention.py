"""The two ways to attend, which differ in what the cache holds for a position: keys and values per head, or one latent.

Each way can attend over a whole sequence without a cache (`whole`), and over the paged cache: `project` gives queries and
what is to be stored, the kernels attend, `merge` brings what they return back to HIDDEN lanes. The two are computed by
different formulas for the latent one: `whole` decompresses keys and values, the cached form attends in latent space.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from kvproof.kernels.paged import paged_kv_store, paged_latent_store

HEADS, HIDDEN = 4, 64
KV_HEADS, HEAD_DIM = 2, 16
LATENT_DIM, ROTARY_DIM = 24, 8
"""Of latent attention: lanes of the latent, and of the rotary key that all heads share. Together a head size of kernels."""
ROTARY_BASE = 10_000.0

Weights = Callable[[int, int], torch.Tensor]
"""Draws a random matrix of so many rows and columns."""

Buffers = tuple[torch.Tensor, ...]
"""Keys and values, or the one latent buffer; or what they hold for some tokens."""


class Attention(Protocol):
    """Attention of one layer; position i attends to j <= i, with `window` > 0 only to j >= i - window."""

    window: int
    scale: float

    def new_buffers(self, lines: int, device: str) -> Buffers:
        """The KV buffers for so many KV indices: tensors [lines, kv heads, lanes]."""

    def project(self, x: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, Buffers]:
        """Of x [n, HIDDEN]: queries [n, HEADS, lanes], and what each buffer holds for it [n, kv heads, lanes]."""

    def store(self, buffers: Buffers, entries: Buffers, kv_indices: torch.Tensor) -> None:
        """Write the entries of n tokens to their KV indices [n]."""

    def merge(self, attended: torch.Tensor) -> torch.Tensor:
        """What the queries brought in, [n, HEADS, lanes], as [n, HIDDEN]."""

    def whole(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Attention within x [n, HIDDEN], which is the whole sequence; [n, HIDDEN]."""


class GroupedQueryAttention:
    """Keys and values per kv head; HEADS / KV_HEADS queries share one."""

    scale = HEAD_DIM**-0.5

    def __init__(self, weights: Weights, window: int) -> None:
        self.window = window
        self.query = weights(HEADS * HEAD_DIM, HIDDEN)
        self.key = weights(KV_HEADS * HEAD_DIM, HIDDEN)
        self.value = weights(KV_HEADS * HEAD_DIM, HIDDEN)
        self.output = weights(HIDDEN, HEADS * HEAD_DIM)

    def new_buffers(self, lines: int, device: str) -> Buffers:
        return tuple(torch.zeros(lines, KV_HEADS, HEAD_DIM, device=device) for _ in ("keys", "values"))

    def project(self, x: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, Buffers]:
        q = (x @ self.query.T).view(-1, HEADS, HEAD_DIM)
        k = (x @ self.key.T).view(-1, KV_HEADS, HEAD_DIM)
        v = (x @ self.value.T).view(-1, KV_HEADS, HEAD_DIM)
        return rotate(q, positions), (rotate(k, positions), v)

    def store(self, buffers: Buffers, entries: Buffers, kv_indices: torch.Tensor) -> None:
        (keys, values), (k, v) = buffers, entries
        paged_kv_store(keys, values, k, v, kv_indices)

    def merge(self, attended: torch.Tensor) -> torch.Tensor:
        return attended.reshape(-1, HEADS * HEAD_DIM) @ self.output.T

    def whole(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        q, (k, v) = self.project(x, positions)
        group = HEADS // KV_HEADS
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        return self.merge(_weigh(torch.einsum("nhd,mhd->hnm", q, k) * self.scale, v, positions, self.window))


class LatentAttention:
    """Multi-head latent attention: per position one latent vector and one rotary key, shared by all heads.

    Keys and values of the heads are linear in the latent, so the queries can be brought into latent space instead
    (absorbed): the cache is then read as one head that all queries share, whose keys are latent and rotary key, and whose
    values are the same lines (of which the latent lanes count).
    """

    scale = (HEAD_DIM + ROTARY_DIM) ** -0.5

    def __init__(self, weights: Weights, window: int) -> None:
        self.window = window
        self.query = weights(HEADS * HEAD_DIM, HIDDEN)
        self.rotary_query = weights(HEADS * ROTARY_DIM, HIDDEN)
        self.latent = weights(LATENT_DIM, HIDDEN)
        self.rotary_key = weights(ROTARY_DIM, HIDDEN)
        self.key = weights(HEADS * HEAD_DIM, LATENT_DIM).view(HEADS, HEAD_DIM, LATENT_DIM)
        self.value = weights(HEADS * HEAD_DIM, LATENT_DIM).view(HEADS, HEAD_DIM, LATENT_DIM)
        self.output = weights(HIDDEN, HEADS * HEAD_DIM)

    def new_buffers(self, lines: int, device: str) -> Buffers:
        return (torch.zeros(lines, 1, LATENT_DIM + ROTARY_DIM, device=device),)

    def project(self, x: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, Buffers]:
        query, rotary_query = self._queries(x, positions)
        latent, rotary_key = self._compress(x, positions)
        absorbed = torch.einsum("nhd,hdl->nhl", query, self.key)
        return torch.cat((absorbed, rotary_query), dim=-1), (torch.cat((latent, rotary_key), dim=-1)[:, None],)

    def store(self, buffers: Buffers, entries: Buffers, kv_indices: torch.Tensor) -> None:
        (latents,), (entry,) = buffers, entries
        paged_latent_store(latents, entry, kv_indices)

    def merge(self, attended: torch.Tensor) -> torch.Tensor:
        return self._output(torch.einsum("nhl,hdl->nhd", attended[..., :LATENT_DIM], self.value))

    def whole(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        query, rotary_query = self._queries(x, positions)
        latent, rotary_key = self._compress(x, positions)
        keys = torch.einsum("ml,hdl->mhd", latent, self.key)
        values = torch.einsum("ml,hdl->mhd", latent, self.value)
        scores = torch.einsum("nhd,mhd->hnm", query, keys) + torch.einsum("nhr,mr->hnm", rotary_query, rotary_key)
        return self._output(_weigh(scores * self.scale, values, positions, self.window))

    def _queries(self, x: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rotary_query = rotate((x @ self.rotary_query.T).view(-1, HEADS, ROTARY_DIM), positions)
        return (x @ self.query.T).view(-1, HEADS, HEAD_DIM), rotary_query

    def _compress(self, x: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x @ self.latent.T, rotate((x @ self.rotary_key.T)[:, None], positions)[:, 0]

    def _output(self, attended: torch.Tensor) -> torch.Tensor:
        return attended.reshape(-1, HEADS * HEAD_DIM) @ self.output.T


ATTENTIONS: dict[str, type[GroupedQueryAttention] | type[LatentAttention]] = {
    "gqa": GroupedQueryAttention,
    "mla": LatentAttention,
}


def _weigh(scores: torch.Tensor, values: torch.Tensor, positions: torch.Tensor, window: int) -> torch.Tensor:
    """Values [m, HEADS, D] by scores [HEADS, n, m], each position seeing itself, what is before, and no more than its window."""
    distance = positions[:, None] - positions[None, :]
    hidden = (distance < 0) | ((distance > window) if window else False)
    return torch.einsum("hnm,mhd->nhd", scores.masked_fill(hidden, float("-inf")).softmax(dim=-1), values)


def rotate(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Rotary positions: each pair of lanes of x [n, heads, lanes] is turned by an angle that grows with the position."""
    half = x.shape[-1] // 2
    frequency = ROTARY_BASE ** (-torch.arange(half, device=x.device) / half)
    angle = (positions[:, None] * frequency)[:, None, :]
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()), dim=-1)
