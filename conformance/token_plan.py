"""Tokens for a trace that has none: chosen so that the tree finds again what the trace says it found.

A trace names pages, never tokens. Two requests begin with the same tokens exactly as far as they name the same pages of the
tree; everything else is told apart by tokens of its own. So each token of each request is an unknown; a page that a request
shares with the tree equates its unknowns with those of the request that left the page there; and what is not equated differs.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvproof.spec.trace import Event

PADDING = 0
"""The token that a too-long input is cut to: the same for all of them, and no choice of the plan."""


class TokenPlan:
    """The tokens of every turn of a trace: its whole input, and its output so far as results came."""

    def __init__(self, events: Iterable[Event], page_size: int) -> None:
        self._page_size = page_size
        self._leader: list[int] = [PADDING]
        self._inputs: dict[str, list[int]] = {}
        self._outputs: dict[str, list[int]] = {}
        self._checkpoints: dict[str, list[int]] = {}
        self._in_tree: dict[int, list[int]] = {}
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
            self._equate(self._up_to(turn, position), self._in_tree.setdefault(page, self._up_to(turn, position)))

    def _equate(self, own: list[int], theirs: list[int]) -> None:
        """The smaller root leads: padding stays what it is."""
        for mine, other in zip(own, theirs, strict=False):
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

    def _only_page_like(self, own: list[int]) -> list[int]:
        """What the tree has instead of a duplicate that was freed: no event names it, so it must be the only one that fits."""
        before = [self._root(unknown) for unknown in own[: -self._page_size]]
        fitting = [
            theirs
            for theirs in self._in_tree.values()
            if len(theirs) == len(own) and [self._root(u) for u in theirs[: -self._page_size]] == before
        ]
        return fitting[0] if len(fitting) == 1 else own

    def _up_to(self, turn: str, position: int) -> list[int]:
        """The unknowns of a turn's leading pages, up to that of this position."""
        return self._tokens_of(turn)[: (position + 1) * self._page_size]

    def _tokens_of(self, turn: str) -> list[int]:
        return self._inputs.get(turn, []) + self._outputs.get(turn, [])

    def _fresh(self, count: int) -> list[int]:
        first = len(self._leader)
        self._leader.extend(range(first, first + max(0, count)))
        return list(range(first, len(self._leader)))

    def _root(self, unknown: int) -> int:
        while self._leader[unknown] != unknown:
            unknown = self._leader[unknown]
        return unknown
