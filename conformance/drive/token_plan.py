"""Tokens for a trace that has none: chosen so that the tree finds again what the trace says it found.

A trace names pages, never tokens. Two requests begin with the same tokens exactly as far as they name the same pages of the
tree; everything else is distinguished by tokens of its own. So each token of each request is an unknown; a page that a request
shares with the tree equates its unknowns with those of the request that left the page there; and what is not equated differs.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvproof.conformance.errors import UserError
from kvproof.spec.trace import Event

PADDING = 0
"""The token that a too-long input is cut to: the same for all of them, and no choice of the plan."""


MOST_TOKENS = 2**16
"""Of all turns of a trace: it is planned which of them are the same, and a trace may come from a stranger."""

_Path = tuple[str, int]
"""The leading unknowns of a turn: whose, and how many. They never change, for a turn only gets more behind them."""


class TooManyTokens(UserError):
    """Drive a smaller trace: `kvproof shrink` makes one, `kvproof slice` cuts one."""


class TokenPlan:
    """The tokens of every turn of a trace: its whole input, and its output so far as results came."""

    def __init__(self, events: Iterable[Event], page_size: int) -> None:
        self._page_size = page_size
        self._leader: list[int] = [PADDING]
        self._inputs: dict[str, list[int]] = {}
        self._outputs: dict[str, list[int]] = {}
        self._checkpoints: dict[str, list[int]] = {}
        self._in_tree: dict[int, _Path] = {}
        """For each page of the tree the unknowns that it ends, from the first of its path."""
        self._rows: dict[str, list[int]] = {}
        self._live: set[str] = set()
        """Turns whose results are theirs: what comes for another comes too late."""
        for event in events:
            self._read(event)

    def input_of(self, turn: str) -> list[int]:
        return [self._root(unknown) for unknown in self._inputs.get(turn, [])]

    def output_of(self, turn: str, position: int) -> int:
        outputs = self._outputs.get(turn, [])
        return self._root(outputs[position]) if position < len(outputs) else len(self._leader)

    def _read(self, event: Event) -> None:
        turn, params = event.turn, event.params
        match event.action:
            case "evict":
                for page in event.free:
                    self._in_tree.pop(page, None)
            case "close" if event.session is not None and not event.after.closing:
                self._checkpoints.pop(event.session, None)
            case "create" if turn is not None and event.session is not None:
                kept = [PADDING] if params.get("too_long") else self._checkpoints.get(event.session, [])
                self._begin(turn, kept, int(params.get("origin_len") or 1))
            case "arrive" if turn is not None:
                self._begin(turn, [], int(params.get("origin_len") or 1))
            case "result" | "verify" if turn in self._live:
                self._outputs.setdefault(turn, []).extend(self._fresh(int(params.get("tokens") or 0)))
            case "extend" | "decode" if turn is not None:
                self._live.add(turn)
                self._take(turn, event)
            case "insert" if turn is not None:
                self._share(turn, event.shared or ())
                self._rows[turn] = [*(event.shared or ()), *self._rows.get(turn, [])[len(event.shared or ()) :]]
            case "retract" | "abort" if turn is not None:
                self._live.discard(turn)
                self._rows.pop(turn, None)
            case "finish" if turn is not None:
                self._live.discard(turn)
                self._finish(turn, event)
            case _:
                pass

    def _begin(self, turn: str, kept: list[int], origin_len: int) -> None:
        """A turn's input begins with what its session kept; a detached turn arrives with the input that it has."""
        if turn not in self._inputs:
            self._inputs[turn] = [*kept[:origin_len], *self._fresh(origin_len - len(kept))]

    def _take(self, turn: str, event: Event) -> None:
        if event.shared is not None:
            self._share(turn, event.shared)
            self._rows[turn] = list(event.shared)
        self._rows.setdefault(turn, []).extend(event.alloc)

    def _share(self, turn: str, pages: tuple[int, ...]) -> None:
        """The tree's pages hold the turn's leading tokens."""
        for position, page in enumerate(pages):
            path = self._up_to(turn, position)
            self._equate(path, self._in_tree.setdefault(page, path))

    def _equate(self, own: _Path, theirs: _Path) -> None:
        """The smaller root leads: padding stays what it is."""
        for mine, other in zip(self._unknowns(own), self._unknowns(theirs), strict=False):
            roots = self._root(mine), self._root(other)
            self._leader[max(roots)] = min(roots)

    def _finish(self, turn: str, event: Event) -> None:
        tokens = self._tokens_of(turn)
        if event.session is not None:
            kept = event.params.get("finished_len")
            output_len = len(tokens) if kept is None else len(self._inputs.get(turn, [])) + int(kept)
            self._checkpoints[event.session] = tokens[:output_len]
        elif event.params.get("inserted", True):
            duplicates = int(event.params.get("dup_len") or 0) // self._page_size
            for position, page in enumerate(self._rows.pop(turn, [])[: len(tokens) // self._page_size]):
                own = self._up_to(turn, position)
                if position < duplicates and page not in self._in_tree:
                    self._equate(own, self._only_page_like(own))
                elif page not in event.free:
                    self._in_tree.setdefault(page, own)

    def _only_page_like(self, own: _Path) -> _Path:
        """What the tree has instead of a duplicate that was freed: no event names it, so it must be the only one that fits."""
        before = self._roots_before_the_last_page(own)
        fitting = [
            theirs
            for theirs in self._in_tree.values()
            if theirs[1] == own[1] and self._roots_before_the_last_page(theirs) == before
        ]
        return fitting[0] if len(fitting) == 1 else own

    def _roots_before_the_last_page(self, path: _Path) -> list[int]:
        return [self._root(unknown) for unknown in self._unknowns(path)[: -self._page_size]]

    def _up_to(self, turn: str, position: int) -> _Path:
        """The unknowns of a turn's leading pages, up to that of this position."""
        return turn, min((position + 1) * self._page_size, len(self._tokens_of(turn)))

    def _unknowns(self, path: _Path) -> list[int]:
        turn, count = path
        return self._tokens_of(turn)[:count]

    def _tokens_of(self, turn: str) -> list[int]:
        return self._inputs.get(turn, []) + self._outputs.get(turn, [])

    def _fresh(self, count: int) -> list[int]:
        first = len(self._leader)
        if first + count > MOST_TOKENS:
            raise TooManyTokens(
                f"its turns have more than {MOST_TOKENS} tokens: only small traces are driven (kvproof shrink)"
            )
        self._leader.extend(range(first, first + max(0, count)))
        return list(range(first, len(self._leader)))

    def _root(self, unknown: int) -> int:
        while self._leader[unknown] != unknown:
            unknown = self._leader[unknown]
        return unknown
