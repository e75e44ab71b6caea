"""What is reported: every event says that something happened, and all of what happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from policies.broken import require, tap

if TYPE_CHECKING:
    from kvproof.impl.config import EngineConfig
    from kvproof.impl.observe import Event
    from kvproof.impl.scheduler import Scheduler


class ReportedEvents:
    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._must_name_prefix: dict[str, bool] = {}
        """Turns that were matched and not yet extended: whether the extend writes a prefix of the tree into the row."""
        self._holds_slot: dict[str, bool] = {}
        self._row_of: dict[str, int | None] = {}
        """Of each session, the row that its turns ran on last."""
        self._last = ""

    def watch(self, scheduler: Scheduler) -> None:
        if scheduler.state.device is None:  # else events are on their way when a step ends
            tap(scheduler, "step", self._step)

    def see(self, event: Event) -> None:
        turn, session = event.turn or "", event.session
        match event.action:
            case "window":
                require(bool(event.window_free), f"an eviction of the window of {turn} gives no page back")
            case "evict":
                require(bool(event.free or event.window_free), "an eviction from the tree gives no page back")
            case "result" if "kv_committed_len" not in event.after:
                require(bool(event.params.get("tokens")), f"a late result of no token is reported of {turn}")
            case "match":
                self._must_name_prefix[turn] = not event.after.get("lent", False)
            case "extend":
                must = self._must_name_prefix.pop(turn, False)
                named = "names no pages of a prefix" if must else "names the pages of a prefix that its row has"
                require((event.shared is not None) == must, f"the extend of {turn} {named}")
                if session is not None:
                    self._row_of[session] = event.row
            case "finish" if session is None:
                inserts = bool(event.params.get("inserted"))
                require(inserts == self._config.radix_cache, f"{turn} ends, and its pages do not go to the tree")
            case "close" if session is not None and self._holds_slot.get(session) and not event.after.get("slot_held"):
                row = self._row_of.get(session)
                require(
                    event.row == row, f"the close of {session} says that row {event.row} comes back, and it is {row}"
                )
        if session is not None and "slot_held" in event.after:
            self._holds_slot[session] = bool(event.after["slot_held"])
        self._last = event.action

    def _step(self, inner: Callable[[], None]) -> None:
        inner()
        if self._config.check_every_step:
            require(self._last == "check", "a step ends without the check that was asked for")
