"""Which free row is taken: the one that was free for the longest time, or, last in first out, for the shortest."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from policies.broken import require, tap

if TYPE_CHECKING:
    from kvproof.impl.state import EngineState


class Rows:
    def __init__(self, state: EngineState) -> None:
        self._is_fifo = state.config.row_order == "fifo"
        self._free = deque(range(1, state.config.rows + 1))
        tap(state.rows, "alloc", self._alloc)
        tap(state.rows, "free", self._give_back)

    def _alloc(self, inner: Callable[[], int]) -> int:
        row = inner()
        right = self._free.popleft() if self._is_fifo else self._free.pop()
        require(row == right, f"row {row} is taken, and row {right} comes first")
        return row

    def _give_back(self, inner: Callable[[int], None], row: int) -> None:
        inner(row)
        self._free.append(row)
