"""Outputs computed anew, by one computation that knows no cache, no pages, no chunks, no drafts and no other request."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from kvproof.impl.transformer import Transformer, logits_from_scratch


def recomputed_output(input_ids: Sequence[int], output_ids: Sequence[int], *, seed: int, window: int) -> list[int]:
    """What the transformer of a seed puts out behind these inputs, as many tokens as `output_ids`, each after those before it."""
    logits = logits_from_scratch(_model(seed, window), [*input_ids, *output_ids][:-1])
    predicted: list[int] = logits[len(input_ids) - 1 :].argmax(dim=-1).tolist()
    return predicted


@lru_cache(maxsize=8)
def _model(seed: int, window: int) -> Transformer:
    return Transformer(seed, window=window)
