"""What an event may show under the header of its trace: which of its fields at all, and numbers between which bounds.

No rule reads a field where it has no place, so without these limits anything could stand there. Both checkers ask this table:
the interpreted one here, the compiled one as arrays (`Limits.numbers`, `Limits.lists`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from kvproof.conformance.replay.judge import SLOT_LENGTHS
from kvproof.conformance.traces.columnar_schema import (
    ACTIONS,
    FLAG_PARAMS,
    FLAGS_AFTER,
    LARGEST_NUMBER,
    NUMBERS_AFTER,
)
from kvproof.spec.events import ENDS
from kvproof.spec.state import Ledger
from kvproof.spec.trace import Config, Event

CHECK = ("check",)
BUT_CHECK = tuple(name for name in ACTIONS if name not in ("check", "ask_abort"))
"""Events that may move pages."""
OF_A_LEDGER = tuple(name for name in BUT_CHECK if name != "evict")
TAKES = ("insert", *ENDS)
"""Events at which the tree may take pages."""
SHARING = ("extend", *TAKES)
"""Events at which a row may take over pages of the tree."""
NONE: tuple[str, ...] = ()
PARAMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("admitted", "too_long", "logprob"), ("create",)),
    "origin_len": ("create", "arrive"),
    "fill_len": ("match",),
    **dict.fromkeys(("seq_len", "last"), ("extend",)),
    **dict.fromkeys(("dup_len", "key_len"), TAKES),
    "prefix_id": SHARING,
    "tokens": ("result", "verify"),
    "pre_len": ("window",),
    **dict.fromkeys(("finished_len", "inserted"), ENDS),
    **dict.fromkeys(("busy", "own_check_ok", "marked_full", "idle_passes"), CHECK),
}
"""The events that may have a parameter (docs/events.md)."""
BOUNDED = ("last", "prefix_id", "idle_passes")
"""Parameters with bounds of their own."""
LISTS = ("alloc", "free", "window_alloc", "window_free")
AFTER = tuple(f"after_{name}" for name in (*FLAGS_AFTER, *NUMBERS_AFTER))
"""Columns of what a ledger shows, which have no bounds."""


@dataclass(frozen=True)
class Limit:
    """Of one column: the actions whose events may have it, its bounds, and what the header says that they follow from."""

    column: str
    actions: Collection[str]
    header: str = ""
    lowest: int = 0
    highest: int = LARGEST_NUMBER

    def broken_by(self, action: str, value: int) -> str | None:
        """What is wrong with this value, as a sentence."""
        if action not in self.actions:
            by = f"only {', '.join(self.actions)} may have it" if self.actions else f"the header says {self.header}"
            return f"{self.column} at an event {action!r}: {by}"
        if self.lowest <= value <= self.highest:
            return None
        bounds = f"{self.lowest}" if self.lowest == self.highest else f"between {self.lowest} and {self.highest}"
        return f"{self.column} is {value}, it must be {bounds}: the header says {self.header}"


@dataclass(frozen=True)
class Contrary:
    """A column that is not there, or below `lowest`, at events of these actions in which `other` is `value`."""

    column: str
    actions: Collection[str]
    other: str
    value: int | None
    lowest: int = 0

    def broken_by(self, event: Event) -> str | None:
        """What is wrong with an event, as a sentence."""
        shown, other = value_of(event, self.column), value_of(event, self.other)
        if event.action not in self.actions or shown is None or shown < self.lowest or other != self.value:
            return None
        but = "without" if self.value is None else f"although it says {bool(self.value)} for"
        return f"{self.column} is {shown} at an event {event.action!r} {but} {self.other}"


CONTRARIES = (
    *(Contrary(f"after_{name}", OF_A_LEDGER, "after_slot_held", held) for name in SLOT_LENGTHS for held in (0, None)),
    Contrary("param_dup_len", ENDS, "param_inserted", 0, lowest=1),
    *(Contrary(f"param_{name}", ("abort",), "param_inserted", None, lowest=1) for name in ("dup_len", "key_len")),
)
"""Lengths of a slot that is not held, or of which that is not told; what the tree had, or took, of a turn of which it took
nothing."""


class Limits:
    """Those of one header."""

    def __init__(self, config: Config) -> None:
        window, named = f"window {config.window}", f"window_pages {config.window_pages}"
        whole = (config.chunked_prefill_size or 0) < 1
        self.overlap, self.rows, self.window_pages = config.overlap, config.rows, config.window_pages
        self.longest_chunk = 0 if whole else config.chunked_prefill_size or 0
        """Tokens; 0: any."""
        self.numbers = (
            Limit("row", OF_A_LEDGER, f"rows {config.rows}", 0, config.rows),
            Limit("param_last", PARAMS["last"], "no chunked_prefill_size, so each prefill is the last", int(whole), 1),
            Limit("param_prefix_id", SHARING, "format 1, in which numbers of prefixes begin with 1", 1),
            Limit("param_idle_passes", CHECK, "that a pass is counted from 1 on", 1),
            *(Limit(f"param_{name}", PARAMS[name], "format 1") for name in PARAMS if name not in BOUNDED),
            Limit("shared", SHARING),
            Limit("free_list", CHECK),
            Limit("terms_total", CHECK, f"pool_pages {config.pool_pages}", config.pool_pages, config.pool_pages),
            Limit("window_terms_total", CHECK, named, config.window_pages, config.window_pages)
            if config.window_pages
            else Limit("window_terms_total", CHECK if config.window else NONE, window),
            Limit("window_free_list", CHECK if config.window_pages else NONE, named),
        )
        # In the order of LISTS.
        self.lists = (
            Limit("alloc", OF_A_LEDGER),
            Limit("free", BUT_CHECK),
            Limit("window_alloc", OF_A_LEDGER if config.window_pages else NONE, named),
            Limit("window_free", BUT_CHECK if config.window_pages else NONE, named),
        )

    def broken_by(self, event: Event) -> Iterator[str]:
        """What an event shows that it may not show, each as a sentence."""
        for limit in self.numbers:
            value = value_of(event, limit.column)
            if value is not None and (wrong := limit.broken_by(event.action, value)):
                yield wrong
        if event.action == "evict" and (event.session is not None or event.turn is not None):
            yield "an evict names a session or a turn: it is of the tree"
        if event.action not in OF_A_LEDGER:
            shown = (column for column in AFTER if value_of(event, column) is not None)
            yield from (
                f"{column} at an event {event.action!r}, which is of no session and no turn" for column in shown
            )
        yield from (wrong for contrary in CONTRARIES if (wrong := contrary.broken_by(event)) is not None)
        yield from self._contrary_to_terms(event)
        for limit in self.lists:
            if getattr(event, limit.column) and (wrong := limit.broken_by(event.action, 0)):
                yield wrong
        for name in FLAG_PARAMS:
            if not isinstance(event.params.get(name), bool | None):
                yield f"{name} is {event.params[name]}: it is true or false"
        for name in event.params.keys() - PARAMS.keys():
            yield f"no event has a parameter {name!r}: valid are {', '.join(sorted(PARAMS))}"
        if event.cause is not None and not self.overlap:
            yield f"this is the late result of event {event.cause}: the header says overlap false"
        elif event.cause is not None and event.action != "result":
            yield f"cause at an event {event.action!r}: only result may have it"

    def _contrary_to_terms(self, event: Event) -> Iterator[str]:
        """What is wrong with the outcome of the implementation's own check, as a sentence.

        A check may fail although what is recorded of it adds up: by terms of the window pool that were not read.
        """
        own = event.params.get("own_check_ok")
        if own is None or event.terms is None or own == (balanced := _balance(event)):
            return
        if own or event.window_terms is not None or not self.window_pages:
            add_up = "add up" if balanced else "do not add up"
            yield f"own_check_ok is {own}, and the terms that the check read {add_up} to their totals"

    def too_long_a_chunk(self, event: Event, before: Ledger) -> Iterator[str]:
        """What is wrong with the tokens that a prefill runs, as a sentence. `before`: the state before it, by the rules."""
        if event.action == "extend" and self.longest_chunk:
            start: Any = before.prefix_len
            tokens = (event.params.get("seq_len") or 0) - start
            if tokens > self.longest_chunk:
                yield f"a prefill of {tokens} tokens: the header says chunked_prefill_size {self.longest_chunk}"


def _balance(event: Event) -> bool:
    """Whether the terms of each pool that a check read add up to its total: what the implementation's own check asks."""
    read = (terms for terms in (event.terms, event.window_terms) if terms is not None)
    return all(sum(vars(terms).values()) - terms.total == terms.total for terms in read)


def value_of(event: Event, column: str) -> int | None:
    """The number in a column that is limited; 1 of a list that is there; None: the event has no such value."""
    match column:
        case "row":
            return event.row
        case _ if column.startswith("param_"):
            return event.params.get(column.removeprefix("param_"))
        case _ if column.startswith("after_"):
            return getattr(event.after, column.removeprefix("after_"))
        case "terms_total":
            return None if event.terms is None else event.terms.total
        case "window_terms_total":
            return None if event.window_terms is None else event.window_terms.total
        case _:
            return None if getattr(event, column) is None else 1
