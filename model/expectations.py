"""Expectations as code: situations that must be reachable, and situations that must never be.

An invariant that holds because nothing happens any more looks proved. So the situations that the rules are about are named here
and looked for in all states of small instances; what is not found, or is found and must not be, fails the proof. A
predicate is written over the number domain, as the rules are. Runs that are expected stand in `model/expected_runs.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter

from kvproof.model.ctrl_c import heed
from kvproof.model.explore import Reachable, Search, TooManyStatesError, the_search
from kvproof.model.integers import Integers
from kvproof.model.small_instances import Instance, said
from kvproof.spec.actions import ACTIONS, Action
from kvproof.spec.domain import Domain, Flag, is_aligned
from kvproof.spec.state import NONE, PREFILL, RUNNING, WAITING, Ledger, fill_len, holds_row, is_live


@dataclass(frozen=True)
class Expectation:
    """A situation of one ledger. Reachable: in some state of some instance. Never: in no state of any.

    `of_every_design`: a changed rule must meet it, too. These speak of what users see (sessions, turns, closes) and of
    who holds rows and pages. The others say which lengths the right rules keep, and where: a design that reserves whole pages,
    or that gives a retracted turn's pages back, is another one and not a wrong one. The same holds for the runs of
    `model/expected_runs.py`, which say what the right rules refuse: what a changed rule does instead must keep the invariants.
    """

    name: str
    reachable: bool
    holds: Callable[[Domain, Ledger], Flag]
    of_every_design: bool = True


def _reachable(name: str, holds: Callable[[Domain, Ledger], Flag]) -> Expectation:
    return Expectation(name, True, holds)


def _never(name: str, holds: Callable[[Domain, Ledger], Flag]) -> Expectation:
    return Expectation(name, False, holds)


def _reachable_by_design(name: str, holds: Callable[[Domain, Ledger], Flag]) -> Expectation:
    return Expectation(name, True, holds, of_every_design=False)


def _never_by_design(name: str, holds: Callable[[Domain, Ledger], Flag]) -> Expectation:
    return Expectation(name, False, holds, of_every_design=False)


def _is_idle_slot(d: Domain, s: Ledger) -> Flag:
    return d.every(s.slot_held, s.phase == NONE)


def _is_queued_on_slot(d: Domain, s: Ledger) -> Flag:
    return d.every(s.slot_held, s.phase == WAITING)


EXPECTATIONS: tuple[Expectation, ...] = (
    _reachable_by_design(
        "a queued turn whose slot has run ahead of the checkpoint",
        lambda d, s: d.every(_is_queued_on_slot(d, s), s.checkpoint_len < s.slot_kv_committed_len),
    ),
    _reachable_by_design(
        "a queued turn whose slot claims a position that was never computed",
        lambda d, s: d.every(_is_queued_on_slot(d, s), s.kv_valid < s.slot_kv_committed_len),
    ),
    _reachable_by_design("a close that waits for a turn", lambda d, s: d.every(s.closing, s.inflight)),
    _reachable_by_design(
        "a close that waits for a turn that runs on the slot's row",
        lambda d, s: d.every(s.closing, s.lent, is_live(d, s)),
    ),
    _reachable_by_design(
        "a turn that must be detached while the slot stays",
        lambda d, s: d.every(_is_queued_on_slot(d, s), s.pre_aborted),
    ),
    _reachable("a pre-aborted turn that runs without a slot", lambda d, s: d.every(s.pre_aborted, is_live(d, s))),
    _reachable_by_design(
        "a slot whose every page is shared with the tree",
        lambda d, s: d.every(_is_idle_slot(d, s), s.row_end == s.tree_end, s.row_end >= 1),
    ),
    _reachable_by_design(
        "a slot with pages of the tree and pages of its own",
        lambda d, s: d.every(_is_idle_slot(d, s), s.tree_end < s.row_end, s.tree_end >= 1),
    ),
    _reachable_by_design(
        "a slot that ends inside a page",
        lambda d, s: d.every(_is_idle_slot(d, s), d.no(is_aligned(d, s.slot_kv_allocated_len))),
    ),
    _reachable_by_design(
        "a slot one token shorter than the checkpoint",
        lambda d, s: d.every(_is_idle_slot(d, s), s.slot_kv_committed_len + d.one == s.checkpoint_len),
    ),
    _reachable(
        "an idle session with a checkpoint and no slot",
        lambda d, s: d.every(s.is_open, s.phase == NONE, d.no(s.slot_held), d.one <= s.checkpoint_len),
    ),
    _reachable_by_design(
        "a queued turn that was lent the slot's row", lambda d, s: d.every(s.lent, s.phase == WAITING, s.matched)
    ),
    _reachable_by_design(
        "a lent turn that keeps back one token that the slot held",
        lambda d, s: d.every(
            s.lent, s.phase == WAITING, s.kv_committed_len + d.one == fill_len(s), d.one <= s.output_len
        ),
    ),
    _reachable_by_design(
        "a chunk that is kept until the next one",
        lambda d, s: d.every(s.phase == PREFILL, s.prefix_len == s.kv_committed_len),
    ),
    _reachable_by_design(
        "a turn with a prepared step", lambda d, s: d.every(s.phase == RUNNING, s.kv_committed_len == fill_len(s))
    ),
    _reachable_by_design(
        "a turn whose row is full", lambda d, s: d.every(s.phase == RUNNING, s.kv_allocated_len == d.row_width)
    ),
    _reachable(
        "an ordinary request that runs on a prefix of the tree",
        lambda d, s: d.every(s.plain, s.phase == RUNNING, s.tree_end >= 1),
    ),
    _reachable(
        "an ordinary request that was retracted and waits with its output",
        lambda d, s: d.every(s.plain, s.phase == WAITING, d.one <= s.output_len),
    ),
    _never("two turns admitted", lambda d, s: d.no(d.some(s.turns == 0, s.turns == 1))),
    _never("a marker without a turn", lambda d, s: d.every(s.inflight, s.phase == NONE)),
    _never("an ordinary request that sets a marker", lambda d, s: d.every(s.plain, s.inflight)),
    _never("an ordinary request with a slot", lambda d, s: d.every(s.plain, s.slot_held)),
    _never("a row without an owner", lambda d, s: d.every(s.rows >= 1, d.no(holds_row(d, s)))),
    _never("an owner without a row", lambda d, s: d.every(holds_row(d, s), s.rows == 0)),
    _never("a slot held without a lock", lambda d, s: d.every(s.slot_held, s.locks == 0)),
    _never("a page that nobody names", lambda d, s: d.no(s.orphans == 0)),
    _never(
        "a closed session that holds anything",
        lambda d, s: d.every(d.no(s.is_open), d.no(s.plain), d.some(s.rows >= 1, s.row_end >= 1, s.locks >= 1)),
    ),
    _never_by_design(
        "a live turn beside a slot that is not lent to it",
        lambda d, s: d.every(s.slot_held, is_live(d, s), d.no(s.lent)),
    ),
    _never("a pre-aborted turn on the slot's row", lambda d, s: d.every(s.pre_aborted, s.lent)),
    _never(
        "a pre-aborted turn with more than one token of input",
        lambda d, s: d.every(s.pre_aborted, d.one < s.origin_len),
    ),
    _never_by_design(
        "prefix_len below R on a lent turn",
        lambda d, s: d.every(s.lent, s.prefix_len < s.cache_protected_len),
    ),
    _never(
        "a session turn that adds nothing to the checkpoint",
        lambda d, s: d.every(s.is_open, is_live(d, s), d.no(s.pre_aborted), s.origin_len <= s.checkpoint_len),
    ),
    _never("a live turn that ran no token", lambda d, s: d.every(is_live(d, s), s.kv_committed_len == d.zero)),
    _never(
        "a live turn with more KV than tokens and steps in flight",
        lambda d, s: d.every(is_live(d, s), fill_len(s) + d.where(s.pending == 2, d.one, d.zero) < s.kv_committed_len),
    ),
    _never_by_design("a live turn that still waits for its match", lambda d, s: d.every(is_live(d, s), s.matched)),
    _never("a row beyond its width", lambda d, s: d.every(is_live(d, s), d.row_width < s.kv_allocated_len)),
    _never(
        "output of a session in the tree",
        lambda d, s: d.every(s.is_open, is_live(d, s), s.origin_len < s.cache_protected_len),
    ),
    _never("a checkpoint of a turn that did not finish", lambda d, s: d.no(s.checkpoint_len == s.success_len)),
)

# By configuration what is looked for in the instances that a proof explores whole.
CONFIGURED: dict[str, tuple[Expectation, ...]] = {
    "plain": EXPECTATIONS,
    "overlap": (
        _reachable_by_design(
            "a slot that holds the KV of its last sampled token",
            lambda d, s: d.every(_is_idle_slot(d, s), s.slot_kv_committed_len == s.checkpoint_len),
        ),
        _reachable("a turn with two results in flight", lambda d, s: s.pending == 2),
    ),
    "overlap, speculation 2": (
        _reachable_by_design(
            "a slot with C < A after speculation v2",
            lambda d, s: d.every(_is_idle_slot(d, s), s.slot_kv_committed_len < s.slot_kv_allocated_len),
        ),
        _never_by_design(
            "a slot with A beyond its tokens",
            lambda d, s: d.every(_is_idle_slot(d, s), s.checkpoint_len < s.slot_kv_allocated_len),
        ),
    ),
    "window 1": (
        _reachable_by_design(
            "a slot whose window was evicted in part",
            lambda d, s: d.every(_is_idle_slot(d, s), s.window_start >= 1, s.window_start < s.row_end),
        ),
        _never("a window freed beyond the row", lambda d, s: s.row_end < s.window_start),
    ),
    "no tree": (_never("a shared page", lambda d, s: s.tree_end >= 1),),
    "overlap, window 1": (
        _reachable_by_design(
            "a window that was evicted while two results are in flight",
            lambda d, s: d.every(s.pending == 2, s.window_start >= 1),
        ),
    ),
}


def situations_of(config: str) -> tuple[Expectation, ...]:
    """What is expected of a configuration, in words: what is named for it, and what may be in none."""
    named = CONFIGURED.get(config, ())
    return (*named, *(e for e in EXPECTATIONS if not e.reachable and e not in named))


Explored = tuple[Reachable, dict[str, int]]
EXPLORED = TypeAdapter(list[Explored | str])


def explored(instances: Iterable[Instance], actions: Mapping[str, Action] = ACTIONS) -> list[Explored | str]:
    """All states of each instance, and in how many of them each situation is met; a sentence where it was not explored whole."""
    search = the_search(actions)
    found = []
    for at in instances:
        heed()  # it may run in a thread, which no Ctrl-C ends
        found.append(_explored(at, search))
    return found


def _explored(at: Instance, search: Search) -> Explored | str:
    situations = {e.name: e.holds for e in situations_of(said(at.config))}
    try:
        found = search.whole(Integers(at.page_size, at.row_width, **at.config), list(situations.values()))
    except TooManyStatesError as error:
        return f"not explored whole: {at} has {error}"
    reachable = Reachable(at.page_size, at.row_width, at.config, found.states, found.depth, found.taken, found.stuck)
    return reachable, dict(zip(situations, found.met, strict=True))


def unmet_in(explored: Iterable[Explored], of_every_design: bool = False) -> Iterator[str]:
    """What is not as expected, as sentences: of the built-in rules, or of those `of_every_design`.

    A situation may be met in any of the instances of its configuration.
    """
    met: dict[str, Counter[str]] = {}
    for found, situations in explored:
        met.setdefault(said(found.config), Counter()).update(situations)
    for config, situations in met.items():
        asked = [e for e in situations_of(config) if e.of_every_design or not of_every_design]
        yield from (f"{what}, {config}" for what in unmet(asked, situations))


def unmet(expectations: Iterable[Expectation], found: Mapping[str, int]) -> list[str]:
    """Those that are not as expected; `found`: in how many states each was met."""
    return [_failure(e) for e in expectations if bool(found[e.name]) != e.reachable]


def _failure(expectation: Expectation) -> str:
    ought = "expected to be reachable and is not" if expectation.reachable else "expected never and is reached"
    return f"{expectation.name}: {ought}"
