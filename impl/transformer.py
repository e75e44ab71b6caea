"""A small random transformer: rotary positions, RMSNorm, every second layer with a sliding window if there is one.

Its words mean nothing; what counts is that every output token depends on the KV of every position in reach, so a wrong
page shows as a wrong token. `logits_from_scratch` computes without any cache what a runner computes with one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from kvproof.impl.attention import ATTENTIONS, HIDDEN, Attention
from kvproof.impl.runner import VOCAB_SIZE

LAYERS = 2
ATTENTION_GAIN = 4.0
"""Makes what attention brings in outweigh the token itself: else a random model repeats its last token, whatever the KV.
What it brings in is normed first: else the mean over a long context would weigh next to nothing."""
LATER_LAYERS = 0.35
"""How much a layer after the first adds, against the first one: so little that the first layer alone guesses the next token
about every second time, as a drafter needs, and so much that a wrong page of a later layer still shows."""

Attend = Callable[[int, Attention, torch.Tensor], torch.Tensor]
"""Attention of layer number so and so over normed x [n, HIDDEN]; [n, HIDDEN]."""


class Layer:
    def __init__(self, attention: Attention, up: torch.Tensor, down: torch.Tensor, share: float) -> None:
        self.attention = attention
        self.share = share
        self.up = up
        self.down = down

    def after_attention(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        x = x + self.share * ATTENTION_GAIN * rms_norm(attended)
        return x + self.share * torch.nn.functional.silu(rms_norm(x) @ self.up.T) @ self.down.T


class Transformer:
    """`attention` says what is stored for a position (gqa or mla), `window` how far every second layer sees (0: all)."""

    def __init__(self, seed: int, device: str = "cpu", attention: str = "gqa", window: int = 0) -> None:
        random = torch.Generator().manual_seed(seed)

        def weights(rows: int, columns: int) -> torch.Tensor:
            return (torch.randn(rows, columns, generator=random) * columns**-0.5).to(device)

        def layer(index: int) -> Layer:
            attend = ATTENTIONS[attention](weights, window if index % 2 else 0)
            share = LATER_LAYERS if index else 1.0
            return Layer(attend, weights(4 * HIDDEN, HIDDEN), weights(HIDDEN, 4 * HIDDEN), share)

        self.device = device
        self.embedding = torch.randn(VOCAB_SIZE, HIDDEN, generator=random).to(device)
        self.layers = [layer(index) for index in range(LAYERS)]
        self.head = weights(VOCAB_SIZE, HIDDEN)

    def hidden(self, token_ids: torch.Tensor, attend: Attend, layers: int = LAYERS) -> torch.Tensor:
        """What the first `layers` layers make of tokens [n]: [n, HIDDEN]."""
        x = self.embedding[token_ids]
        for index, layer in enumerate(self.layers[:layers]):
            x = layer.after_attention(x, attend(index, layer.attention, rms_norm(x)))
        return x

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x) @ self.head.T


def logits_from_scratch(model: Transformer, token_ids: Sequence[int]) -> torch.Tensor:
    """Logits [tokens, vocabulary] of a whole sequence, computed at once and without a cache."""
    positions = torch.arange(len(token_ids), device=model.device)
    tokens = torch.tensor(token_ids, device=model.device)
    return model.logits(model.hidden(tokens, lambda index, attention, x: attention.whole(x, positions)))


def rms_norm(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6)
