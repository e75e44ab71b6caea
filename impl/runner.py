"""What a scheduler asks of a forward: run these positions, tell the next tokens of each request, now or one step later.

A runner keeps, per row, the tokens that it has seen and the length that has KV. A decoding row continues from there, so that
a step can be launched before anybody has read what the last one gave (overlap).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

VOCAB_SIZE = 1024
"""Token ids are 0 to VOCAB_SIZE - 1; 0 is padding."""


@dataclass(frozen=True)
class ForwardInput:
    """One request's share of a prefill: positions [0, seq_len) of one row; the KV of [0, prefix_len) is in the row already.

    `token_ids` are all tokens from position 0 to seq_len.
    """

    row: int
    prefix_len: int
    token_ids: Sequence[int]

    @property
    def seq_len(self) -> int:
        return len(self.token_ids)


class Launch(Protocol):
    """A forward that was started. Its tokens come later."""

    def tokens(self) -> list[list[int]]:
        """Wait for it; the new tokens of each request, extends first, then decodes.

        One token each; with drafts a decode has 1 to drafts + 1: the accepted drafts and the target's own next token.
        """


class Runner(Protocol):
    def launch(self, extend: Sequence[ForwardInput] = (), decode: Sequence[int] = (), drafts: int = 0) -> Launch:
        """Start one forward over shares of prefills and over rows that decode; a mixed batch has both.

        An extend writes the KV of [prefix_len, seq_len) and sets the row's state: its length, and as its next token the one
        that it predicts. A decoding row continues from where its last launch ended: the next token, at position seq_len, gets
        its KV, and the one after it is predicted. With `drafts` > 0 each decoding row guesses that many tokens, verifies
        them in the same forward, and advances by the accepted ones and the bonus (1 to drafts + 1 tokens).

        Positions [0, seq_len + drafts] of a decoding row have KV indices already. The page table is read before this
        returns, so the row may be changed right afterwards. Launches of one runner run in the order in which they came.
        """


@dataclass(frozen=True)
class FinishedLaunch:
    """A forward that was over when it was launched."""

    result: list[list[int]]

    def tokens(self) -> list[list[int]]:
        return self.result


class HashRunner:
    """No model: the next token is a hash of the last one and its position. For runs that only the bookkeeping matters to.

    A draft is right with probability `draft_accuracy`, always or never for the same token at the same position: so every
    accept length occurs, and a run can be repeated.
    """

    def __init__(self, seed: int, draft_accuracy: float = 0.6) -> None:
        self._seed = seed
        self._right_below = int(draft_accuracy * 2**64)
        self._rows: dict[int, tuple[int, int]] = {}
        """Of each row: its length, and its next token (which has no KV yet)."""

    def launch(
        self, extend: Sequence[ForwardInput] = (), decode: Sequence[int] = (), drafts: int = 0
    ) -> FinishedLaunch:
        rows, result = self._rows, []
        for item in extend:
            seq_len = len(item.token_ids)
            token = self._next_token(item.token_ids[-1], seq_len)
            rows[item.row] = seq_len, token
            result.append([token])
        for row in decode:
            seq_len, token = rows[row]
            tokens = self._decode(token, seq_len, drafts)
            rows[row] = seq_len + len(tokens), tokens[-1]
            result.append(tokens)
        return FinishedLaunch(result)

    def _decode(self, token: int, seq_len: int, drafts: int) -> list[int]:
        tokens = [self._next_token(token, seq_len + 1)]
        while len(tokens) <= drafts and self._is_drafted_right(tokens[-1], seq_len + len(tokens)):
            tokens.append(self._next_token(tokens[-1], seq_len + len(tokens) + 1))
        return tokens

    def _next_token(self, token: int, seq_len: int) -> int:
        """What follows a sequence of `seq_len` tokens that ends with `token`."""
        return 1 + self._hash(token, seq_len, self._seed) % (VOCAB_SIZE - 1)

    def _is_drafted_right(self, token: int, position: int) -> bool:
        return self._hash(token, position, ~self._seed) < self._right_below

    def _hash(self, token: int, position: int, salt: int) -> int:
        mixed = (token * 0x9E3779B97F4A7C15 + position * 0xBF58476D1CE4E5B9 + salt) % 2**64
        mixed = (mixed ^ (mixed >> 30)) * 0x94D049BB133111EB % 2**64
        return mixed ^ (mixed >> 31)
