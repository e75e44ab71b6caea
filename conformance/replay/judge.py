"""One event against one rule: what the rule says must be seen, what was seen, and where they differ."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainValidator

from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.kept_types import Text
from kvproof.conformance.replay.page_book import Moves, PageBook
from kvproof.conformance.replay.window_book import WindowMoves
from kvproof.model.integers import Integers
from kvproof.model.oracle import Oracle, Outcome, Value
from kvproof.spec.actions import Action
from kvproof.spec.batch import LAUNCHES
from kvproof.spec.domain import Domain, larger, smaller
from kvproof.spec.effects import Report, most_tokens
from kvproof.spec.events import ENDS
from kvproof.spec.state import FIELDS, GHOSTS, WAITING, Ledger
from kvproof.spec.trace import Event

OF_NO_TURN = ("open", "close")
"""Events of a session alone."""
LEAVES_ITS_SESSION = ("detach",)
"""Rules by which a turn continues as a request of its own."""
LATE_RESULTS = ("late_result", "result_of_ended")
"""Rules of a result that comes for a turn which no longer runs."""
# Events that always name the row of their turn.
WITH_ROW = ("extend", "stash", "insert", "decode")
TURN_FIELDS = frozenset(f.name for f in FIELDS if f.metadata["group"] == "turn")
SLOT_LENGTHS = tuple(f.name for f in FIELDS if f.metadata["group"] == "slot" and f.metadata["sort"] == "length")


def _shown(value: object) -> object:
    """What a file may hold as the value of a difference: pages, or one value. Raises ValueError for anything else."""
    for one in value if isinstance(value, list) else [value]:
        if type(one) not in (bool, int, str, type(None)):
            raise ValueError(f"a finding shows {value!r:.60}")
    return value


Shown = Annotated[object, PlainValidator(_shown)]


@dataclass(frozen=True)
class Difference:
    """A value that was seen and is not what the rule says. `before` is None where it has no earlier value."""

    name: Text
    before: Shown
    expected: Shown
    seen: Shown


# The invariant that a value is about, or that of one rule: what is named when no rule of the catalogue predicts what was seen.
ABOUT = {
    "inflight": "I15",
    "closing": "I15",
    "attached": "I15",
    "admitted": "I15",
    "checkpoint_len": "I14",
    "fill_len": "I14",
    "inserted": "I1",
    "key_len": "I12",
    "dup_len": "I16",
    "slot_held": "I16",
    "lent": "I5",
    "slot_kv_committed_len": "I8",
    "slot_kv_allocated_len": "I7",
    "slot_cache_protected_len": "I12",
    "prefix_len": "I12",
    "kv_committed_len": "I3",
    "kv_allocated_len": "I3",
    "cache_protected_len": "I12",
    "swa_evicted_seqlen": "I9",
    "slot_swa_evicted_seqlen": "I9",
    "output_len": "I17",
    "tokens": "I22",
    "late_result.tokens": "I17",
    "result_of_ended.tokens": "I17",
    "finished_len": "I14",
    "row": "I5",
    "freed pages": "I16",
    "freed window pages": "I10",
    "number of window pages taken": "I10",
    "number of pages taken": "I1",
}


Compared = tuple[str, object, object, object]
"""A value that an event may show: its name, its value before, what it has to be, what was seen (None: nothing)."""


@dataclass(frozen=True)
class Judgement:
    """An event under one rule (right or faulty): the outcome, its page moves, what was compared, and every difference."""

    outcome: Outcome
    moves: Moves
    differences: tuple[Difference, ...]
    compared: tuple[Compared, ...]

    @property
    def agrees(self) -> bool:
        """The rule predicts exactly what was seen."""
        return not self.differences


SHOWN_BY = {"allocated_len": "kv_allocated_len", "matched_len": "prefix_len"}
"""Parameters that the environment chose and that no event carries: the field of `after` that shows each."""


def parameters(event: Event, action: Action, before: Ledger) -> dict[str, Value]:
    """The action's parameters as the event gives them; what the environment chose is read off what was seen.

    Raises UserError where the event lacks one.
    """
    given: dict[str, Any] = {name: value for name, value in event.params.items() if value is not None}
    given.setdefault("logprob", False)
    given.setdefault("too_long", False)
    for name, otherwise in (("allocated_len", before.kv_allocated_len), ("matched_len", 0)):
        if name in action.params:
            given[name] = getattr(event.after, SHOWN_BY[name]) or otherwise
    if "dup_len" in action.params:
        given.setdefault("dup_len", 0)
        # Of an aborted turn it is only told where the tree took something.
        given.setdefault("inserted", action.event == "finish")
        given.setdefault("key_len", before.kv_committed_len)
    if missing := [name for name in action.params if name not in given]:
        raise UserError(f"event {event.seq}: {event.action!r} has no {', '.join(missing)}, which its rule needs")
    return given


def judge(d: Integers, book: PageBook, key: str, outcome: Outcome, event: Event) -> Judgement:
    """What an event of ledger `key` shows against what one rule says of it."""
    moves = book.foresee(key, outcome.effects, event)
    compared = comparisons(d, outcome, event)
    differences = [Difference(*c) for c in compared if c[-1] is not None and c[-1] != c[-2]]
    differences += _row(book, moves, event, outcome.action.of_another)
    return Judgement(outcome, moves, (*differences, *_pages(book, moves, event)), tuple(compared))


def comparisons(d: Integers, outcome: Outcome, event: Event) -> list[Compared]:
    """What an event may show of the successor.

    The compiled checker runs this on terms (`compiled/rules.py`): what is compared here is compared there.
    """
    action, params = outcome.action, event.params
    before, after = visible_fields(outcome.before), visible_fields(outcome.after)
    after["attached"] = _is_attached(outcome)
    if not after["slot_held"]:
        for name in SLOT_LENGTHS:
            after.pop(name)
    if action.of_another:  # the turn's own values are not those of the session's turn
        for name in TURN_FIELDS:
            after.pop(name, None)
        if action.event == "match":  # it runs on no slot
            after |= {"lent": d.false, "prefix_len": d.zero}
    shown = vars(event.after).items()
    compared: list[Compared] = [(name, before.get(name), after[name], seen) for name, seen in shown if name in after]
    compared.append(("admitted", None, _is_admitted(outcome), params.get("admitted")))
    takes_nothing = action.event in ENDS and "inserted" not in action.params
    if takes_nothing and d.floor_pages(outcome.before.kv_committed_len) >= 1:
        compared.append(("inserted", None, False, params.get("inserted")))
    if action.name in LATE_RESULTS:  # they are dropped
        compared.append(_at_most(d, "tokens", most_tokens(d), params.get("tokens")))
    elif action.event == "result" and "tokens" not in action.params:
        compared.append(("tokens", None, outcome.after.output_len - outcome.before.output_len, params.get("tokens")))
    if action.event in ENDS and "finished_len" not in action.params:
        compared.append(_at_most(d, "finished_len", outcome.before.output_len, params.get("finished_len")))
    if not action.of_another:
        known = outcome.before.origin_len + outcome.before.output_len
        compared.append(("fill_len", None, known, params.get("fill_len")))
    # Of these, only whether the event has them is judged here: others compare their values.
    if action.event in LAUNCHES:
        compared.append(("step", None, event.step, event.step))
    if action.event == "insert":
        compared.append(("shared", None, event.shared, event.shared))
    if _names_a_prefix(d, outcome, params):
        told = params.get("prefix_id")
        compared.append(("prefix_id", None, told, told))
    return [*compared, *_taken_by_the_tree(d, outcome, params)]


def _names_a_prefix(d: Domain, outcome: Outcome, params: Mapping[str, Any]) -> bool:
    """Whether the row begins with pages of the tree that this event put there, or that it handed over."""
    before, after, event = outcome.before, outcome.after, outcome.action.event
    if event == "extend":
        return bool(before.phase == WAITING and not before.lent and d.floor_pages(before.prefix_len) >= 1)
    if event == "insert":
        return bool(d.floor_pages(after.cache_protected_len) >= 1)
    kept, pages = params.get("finished_len"), d.floor_pages(before.kv_committed_len)
    if event not in ENDS or "inserted" not in outcome.action.params or kept is None:
        return False
    # A round that overshot is cut off: more pages than tokens.
    return bool(params.get("inserted") == 1 and pages >= 1 and d.tokens(pages) <= before.origin_len + kept)


def _taken_by_the_tree(d: Domain, outcome: Outcome, params: Mapping[str, Any]) -> Iterator[Compared]:
    """What an insert or an end says of the tree and no rule reads: of a rule that takes nothing, or all."""
    action, committed = outcome.action, outcome.before.kv_committed_len
    if action.event in ENDS and "dup_len" not in action.params:
        yield "dup_len", None, d.zero, params.get("dup_len")
    if action.event in ENDS and "key_len" not in action.params:
        whole = committed if "inserted" in action.params else d.zero
        yield "key_len", None, whole, params.get("key_len")


def _at_most(d: Integers, name: str, most: Any, seen: Any) -> Compared:
    """A number of tokens that no rule reads is compared with the nearest one that may be."""
    return name, None, most if seen is None else larger(d, d.zero, smaller(d, seen, most)), seen


def _row(book: PageBook, moves: Moves, event: Event, of_another: bool) -> list[Difference]:
    """An event names the row that its ledger has, or had before it; some always do, and others where they name one."""
    names_one = event.row is not None and not of_another
    table = moves.table or (book.table(moves.key) if names_one else None)
    row = table.row if table is not None else None
    if not (names_one or (event.action in WITH_ROW and table is not None)) or event.row == row:
        return []
    return [Difference("row", None, row, event.row)]


def _pages(book: PageBook, moves: Moves, event: Event) -> list[Difference]:
    differences = []
    if Counter(moves.freed) != Counter(event.free):
        differences.append(Difference("freed pages", None, sorted(moves.freed), sorted(event.free)))
    if moves.wanted != len(event.alloc):
        differences.append(Difference("number of pages taken", None, moves.wanted, len(event.alloc)))
    return differences + (_window_pages(moves.window, event) if book.window.is_followed else [])


def _window_pages(moves: WindowMoves, event: Event) -> list[Difference]:
    differences = []
    if Counter(moves.freed) != Counter(event.window_free):
        seen = sorted(event.window_free)
        differences.append(Difference("freed window pages", None, sorted(moves.freed), seen))
    if moves.wanted != len(event.window_alloc):
        differences.append(Difference("number of window pages taken", None, moves.wanted, len(event.window_alloc)))
    return differences


def visible_fields(s: Ledger) -> dict[str, object]:
    return {name: value for name, value in vars(s).items() if name not in GHOSTS}


def _is_admitted(outcome: Outcome) -> bool:
    return bool(outcome.after.turns > outcome.before.turns)


def _is_attached(outcome: Outcome) -> bool:
    """The event's turn belongs to its session afterwards."""
    if outcome.action.event == "create" or outcome.action.of_another:
        return _is_admitted(outcome)
    return bool(outcome.after.inflight or outcome.after.turns > 0)


def check_terms(oracle: Oracle, ledgers: Mapping[str, Ledger], lingering: Set[str]) -> Report:
    """The terms of all ledgers together, in pages of both pools, by the oracle's own rule of the memory check.

    `lingering`: ledgers whose last turn may still stand in the batch that the check looks at.
    """
    reports: list[Report] = []
    for key, ledger in ledgers.items():
        (report,) = oracle.step(oracle.actions["check"], ledger, {"lingering": key in lingering}).effects
        assert isinstance(report, Report)
        reports.append(report)
    return Report(*(sum(getattr(r, f.name) for r in reports) for f in dataclasses.fields(Report)))
