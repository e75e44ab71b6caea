"""What a scheduler asks of a forward: run these positions, tell the next token of each request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

VOCAB_SIZE = 1024
"""Token ids are 0 to VOCAB_SIZE - 1; 0 is padding."""


@dataclass(frozen=True)
class ForwardInput:
    """Positions [prefix_len, prefix_len + len(token_ids)) of one row; the KV of [0, prefix_len) is in the row already."""

    row: int
    prefix_len: int
    token_ids: Sequence[int]

    @property
    def seq_len(self) -> int:
        return self.prefix_len + len(self.token_ids)


class Runner(Protocol):
    def extend(self, batch: Sequence[ForwardInput]) -> list[int]:
        """Write the KV of the given tokens into their rows; return the token that follows each request's last one."""

    def decode(self, batch: Sequence[ForwardInput]) -> list[int]:
        """The same for one token per request."""


class HashRunner:
    """No model: the next token is a hash of the last one and its position. For runs that only the bookkeeping matters to."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def extend(self, batch: Sequence[ForwardInput]) -> list[int]:
        return [self._next_token(item) for item in batch]

    def decode(self, batch: Sequence[ForwardInput]) -> list[int]:
        return self.extend(batch)

    def _next_token(self, item: ForwardInput) -> int:
        mixed = (item.token_ids[-1] * 0x9E3779B97F4A7C15 + item.seq_len * 0xBF58476D1CE4E5B9 + self._seed) % 2**64
        mixed = (mixed ^ (mixed >> 30)) * 0x94D049BB133111EB % 2**64
        return 1 + (mixed ^ (mixed >> 31)) % (VOCAB_SIZE - 1)
