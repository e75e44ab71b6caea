"""Profiles: what a release of an inference server does by other rules than these, each difference as a replaced action.

A profile does not say that the release is right. The proof says what follows from its rules (`kvproof prove --profile`), and a
replay against a profile (`kvproof replay --profile`) says whether a trace follows them. The two parts are kept apart there:
`rules`, another design, is what is judged by; `deviations`, known faults, are followed and counted, or with `--strict` found.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from types import SimpleNamespace
from typing import Any

from kvproof.spec.actions import ACTIONS, Action, Guard, Run, Step
from kvproof.spec.actions.memory_check import report
from kvproof.spec.actions.prefill import fill_len, insert_own, match_key_len, restored, without_tail
from kvproof.spec.domain import (
    Domain,
    Flag,
    Length,
    ceil_align,
    floor_align,
    larger,
    minus,
    one_page,
    orphan_start,
    smaller,
)
from kvproof.spec.effects import End, Forget, Free, FreeWindow, Report, Succeed
from kvproof.spec.faults import FAULTS
from kvproof.spec.patience import Patience
from kvproof.spec.recorded_values import OF_SGLANG, OF_TARGETS, Told
from kvproof.spec.state import PREFILL, WAITING, Ledger, drop_slot


@dataclass(frozen=True)
class Profile:
    name: str
    summary: str
    deviations: tuple[str, ...]
    """Of the fault catalogue: what the release is known to do wrong."""
    rules: Mapping[str, Action] = field(default_factory=dict)
    """What it does by another design."""
    releases: tuple[str, ...] = ()
    """What was run of it, as the header of a trace names it: the first and the last, and all between are of it, too."""
    tells: Told = field(default_factory=lambda: OF_SGLANG)
    """What its recorder shows at the events of each rule."""
    patience: Patience = Patience()
    """For how long something may stand still."""

    @property
    def replaced(self) -> dict[str, Action]:
        """All that is not as the model has it: what is proved or refuted."""
        wrong = {name: action for fault in self.deviations for name, action in FAULTS[fault].in_traces.items()}
        return {**self.rules, **wrong}

    @property
    def actions(self) -> dict[str, Action]:
        """What a trace is judged by: the release's design, without what it is known to do wrong."""
        return {**ACTIONS, **self.rules}

    def is_of(self, target: str) -> bool:
        """Whether a trace of this target is of it: "sglang 0.5.19" lies between two that were run."""
        name, version = _named(target)
        first, last = _named(self.releases[0]), _named(self.releases[-1])
        return bool(version) and name == first[0] and first[1] <= version <= last[1]


def _right(action: str, d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    return ACTIONS[action].run(d, s, p)


def _insert_chunk(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A chunk of a session's first prompt is inserted as an ordinary request's is; of its output nothing, as ever."""
    right = _right("insert", d, s.but(plain=d.true), p)
    only_input = Guard("a session inserts its prompt, never its output", d.some(s.plain, p.key_len <= s.origin_len))
    return Step(right.after.but(plain=s.plain), (*right.guards, only_input), right.effects)


def _may_insert_chunk(d: Domain, s: Ledger) -> Flag:
    first_prompt = d.every(d.tree, s.phase == PREFILL, d.no(s.plain), d.no(s.slot_held))
    return d.some(ACTIONS["insert"].applies(d, s), first_prompt)


KeyRule = Callable[[Domain, Length, Length], Flag]


def _in_pairs(d: Domain, key_len: Length, whole: Length) -> Flag:
    """EAGLE's draft reads a token with the hidden state of the one before, so its tree's keys are pairs: one less than tokens."""
    return d.every(_drafted(d), d.floor_pages(key_len) == d.floor_pages(minus(d, whole, d.one)))


def _drafted(d: Domain) -> Flag:
    return d.some(d.spec_v1, d.spec_v2)


def _parts(d: Domain, key_len: Length, whole: Length) -> Flag:
    """Up to where a prompt parts from one that has lost its window pages; or in pairs."""
    return d.some(d.every(d.windowed, key_len < whole), _in_pairs(d, key_len, whole))


def _insert_pairs(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """With EAGLE's drafts the tree takes all but the last token, in whole pages. The rest stays the row's own."""
    return _up_to_the_key(d, s, p, ACTIONS["insert"].run, _in_pairs)


def _insert_where_it_parts(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A prompt that begins as another one did, whose window pages are gone, is inserted only up to where it parts from it.

    So who comes next finds that much with its window. `key_len`: up to there. The rest stays the row's own.
    """
    return _up_to_the_key(d, s, p, ACTIONS["insert"].run, _parts)


def _insert_chunk_where_it_parts(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Chunks of a session's first prompt are inserted, too; where it parts from one without its window, only up to there."""
    return _up_to_the_key(d, s, p, _insert_chunk, _parts)


def _up_to_the_key(d: Domain, s: Ledger, p: SimpleNamespace, insert: Run, may_fall_short: KeyRule) -> Step:
    prefilled = d.where(s.phase == PREFILL, s.kv_committed_len, minus(d, fill_len(s), d.one))
    short = may_fall_short(d, p.key_len, prefilled)
    whole = insert(d, s, SimpleNamespace(**{**vars(p), "key_len": d.where(short, prefilled, p.key_len)}))
    pages = d.floor_pages(p.key_len)
    fits = Guard("duplicates are of inserted pages", d.floor_pages(p.dup_len) <= pages)
    after = whole.after.but(cache_protected_len=d.tokens(pages))
    return Step(after, (*whole.guards, fits), (insert_own(d, s, d.true, pages, p.dup_len),))


def _finish_short_of_a_round(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """With EAGLE's drafts the tree takes all but the last token kept. What lies behind that is freed: drafts past the end of the
    request, and what the round in flight writes."""
    return _finish_up_to_the_key(d, s, p, _short_of_a_round(d, s, p.key_len))


def _finish_where_it_parts(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """As for the insert: the tree takes no more than the prefix where it parts, and the rest is freed; so it is with drafts."""
    parts = d.every(d.windowed, p.key_len < s.kv_committed_len)
    return _finish_up_to_the_key(d, s, p, d.some(parts, _short_of_a_round(d, s, p.key_len)))


def _short_of_a_round(d: Domain, s: Ledger, key_len: Length) -> Flag:
    in_flight = d.where(s.pending == 0, d.zero, d.one)
    ahead = d.where(d.spec_v2, d.drafts + in_flight, d.zero)
    least = minus(d, s.kv_committed_len, ahead + d.one)
    return d.every(_drafted(d), d.floor_pages(least) <= d.floor_pages(key_len), key_len < s.kv_committed_len)


def _finish_up_to_the_key(d: Domain, s: Ledger, p: SimpleNamespace, may_fall_short: Flag) -> Step:
    enough = Guard("a tree takes what there is", d.some(p.key_len == s.kv_committed_len, may_fall_short))
    taken = _right("finish_plain", d, s.but(kv_committed_len=p.key_len), p)
    return Step(taken.after, (*taken.guards, enough), taken.effects)


def _abort_into_tree(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The turn leaves its session and ends like an ordinary request: whole committed pages go to the tree."""
    plainly = _finish_where_it_parts(d, s, p)
    return Step(drop_slot(d, plainly.after), plainly.guards, plainly.effects)


def _check_by_session(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """What a session's turn holds is the session's, also while it runs; only ordinary requests are uncached."""
    right, ours = report(d, s), d.no(s.plain)

    def split(held: Any, uncached: Any) -> tuple[Any, Any]:
        return held + d.where(ours, uncached, 0), d.where(ours, 0, uncached)

    held, uncached = split(right.session_held, right.uncached)
    return Step(s, effects=(Report(held, uncached, *split(right.window_held, right.window_uncached)),))


def _evicts_before_it_runs(d: Domain, s: Ledger) -> Flag:
    """On a chunk cache a later turn's window is evicted before its first chunk, which follows in the same step."""
    return d.every(d.windowed, d.no(d.tree), s.phase == WAITING, s.lent)


def _may_evict(d: Domain, s: Ledger) -> Flag:
    return d.some(ACTIONS["evict_window"].applies(d, s), _evicts_before_it_runs(d, s))


def _begun(d: Domain, s: Ledger) -> Ledger:
    """The turn that evicts before it runs has begun: like one between chunks, it counts the pages of its row itself."""
    begins = _evicts_before_it_runs(d, s)
    return s.but(
        phase=d.where(begins, PREFILL, s.phase),
        matched=d.every(s.matched, d.no(begins)),
        kv_committed_len=d.where(begins, s.prefix_len, s.kv_committed_len),
    )


def _evict_window_up_to(d: Domain, waiting_or_live: Ledger, p: SimpleNamespace, kept: Length) -> Step:
    """E := max(E, R), then up to floor_P(pre_len - kept). No page more than the window reaches has to stay.

    A retracted turn is matched again one token before where it stood, and `pre_len` is that token at most: its window is whole.
    """
    s = _begun(d, waiting_or_live)
    right = _right("evict_window", d, s, p)
    cursor = larger(d, s.swa_evicted_seqlen, s.cache_protected_len)
    moved = larger(d, cursor, floor_align(d, minus(d, p.pre_len, kept)))
    freed = FreeWindow(d.ceil_pages(cursor), d.floor_pages(moved))
    is_whole = d.some(moved <= cursor, moved + d.window < larger(d, s.kv_committed_len, fill_len(s)))
    guards = (*right.guards, Guard("the window of a turn that is retracted stays", is_whole))
    return Step(s.but(swa_evicted_seqlen=moved), guards, (freed, Forget(s.kv_committed_len)))


def cut_before_cursor(d: Domain, length: Length, cursor: Length) -> Length:
    """Where a row is cut: within the page of the window cursor or before it, at a page boundary. So the cursor stays on one."""
    return d.where(length < cursor, floor_align(d, length), length)


def _match_cut_before_cursor(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """As in the model; a rewind below the window cursor goes down to a page boundary."""
    whole = smaller(d, s.slot_kv_committed_len, match_key_len(d, s))
    prefix_len = cut_before_cursor(d, whole, s.slot_swa_evicted_seqlen)
    tail = Free(orphan_start(d, prefix_len), s.slot_kv_allocated_len)
    return Step(without_tail(d, restored(d, s, prefix_len)), effects=(tail,))


def _finish_cut_before_cursor(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """As in the model; what is kept goes down to a page boundary if it ends below the window cursor."""
    right = _right("finish", d, s, p)
    target = s.origin_len + p.finished_len
    end = cut_before_cursor(d, target, s.swa_evicted_seqlen)
    after = right.after.but(
        slot_kv_committed_len=smaller(d, s.kv_committed_len, end),
        slot_kv_allocated_len=smaller(d, s.kv_allocated_len, end),
        slot_swa_evicted_seqlen=smaller(d, s.swa_evicted_seqlen, end),
    )
    tail = Free(orphan_start(d, end), s.kv_allocated_len)
    return Step(after, right.guards, (tail, Forget(target), Succeed(target), End(d.true)))


def _keep_window(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """W stays, on a tree as on a chunk cache; there it is done before a later turn's first chunk, too."""
    return _evict_window_up_to(d, s, p, d.window)


def _keep_window_and_page(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """W + P stay, as in the model; on a chunk cache it is done before a later turn's first chunk, too."""
    return _evict_window_up_to(d, s, p, d.window + one_page(d))


def _keep_window_and_page_of_a_tree(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """On a tree W + P stay; a chunk cache has no leaf that needs a page of the window, and keeps W."""
    return _evict_window_up_to(d, s, p, d.where(d.tree, d.window + one_page(d), d.window))


def _keep_window_or_page(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A tree keeps max(W, P), so that the last leaf has a page of the window; a chunk cache keeps W."""
    return _evict_window_up_to(d, s, p, d.where(d.tree, larger(d, d.window, one_page(d)), d.window))


def _keep_window_in_pages(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A tree keeps max(W, P) in whole pages, so that a key which ends with a page finds a whole window; a chunk cache W."""
    return _evict_window_up_to(d, s, p, d.where(d.tree, ceil_align(d, larger(d, d.window, one_page(d))), d.window))


def _instead(action: str, **changes: Any) -> Action:
    return dataclasses.replace(ACTIONS[action], **changes)


def _evict(run: Run, source: str) -> Action:
    return _instead("evict_window", run=run, applies=_may_evict, source=source)


UP_TO = {**ACTIONS["finish_plain"].params, "key_len": "length"}
ENDS_LIKE_A_REQUEST = {"run": _abort_into_tree, "params": UP_TO, "source": "sglang 0.5.23"}
ENDS_WHERE_IT_PARTS = _instead("finish_plain", run=_finish_where_it_parts, params=UP_TO, source="sglang 0.5.20")
FROM_0_5_17 = {
    "insert": _instead("insert", run=_insert_where_it_parts, source="sglang 0.5.20"),
    "finish_plain": ENDS_WHERE_IT_PARTS,
    "evict_window": _evict(_keep_window_or_page, "sglang 0.5.17"),
}
CUTS_BEFORE_CURSOR = {
    "match_slot": _instead("match_slot", run=_match_cut_before_cursor, source="sglang 0.5.19"),
    "finish": _instead("finish", run=_finish_cut_before_cursor, source="sglang 0.5.19"),
}
PAIRS = {
    "insert": _instead("insert", run=_insert_pairs, source="sglang 0.5.10.post1"),
    "finish_plain": _instead("finish_plain", run=_finish_short_of_a_round, params=UP_TO, source="sglang 0.5.10.post1"),
}

ENDS_WITH_ITS_PROMPT = Patience(aborted=4096)
"""Of a prompt that runs in chunks, all that are left are run before its abort is heeded (until sglang #28086)."""

PROFILES: dict[str, Profile] = {
    p.name: p
    for p in (
        Profile(
            "sglang-0.5.10",
            "sglang 0.5.10.post1: with EAGLE's drafts the tree takes one token less, the window is evicted further, "
            "and on a chunk cache a later turn's before it runs, too",
            (),
            {**PAIRS, "evict_window": _evict(_keep_window, "sglang 0.5.10.post1")},
            ("sglang 0.5.10.post1",),
            patience=ENDS_WITH_ITS_PROMPT,
        ),
        Profile(
            "sglang-0.5.11",
            "sglang 0.5.11 to 0.5.13: two deviations, with EAGLE's drafts the tree takes one token less, and on a chunk cache "
            "a later turn's window is evicted before it runs, too",
            ("S0511a", "S0511b"),
            {**PAIRS, "evict_window": _evict(_keep_window_and_page, "sglang 0.5.11")},
            ("sglang 0.5.11", "sglang 0.5.13"),
            patience=ENDS_WITH_ITS_PROMPT,
        ),
        Profile(
            "sglang-0.5.14",
            "sglang 0.5.14: as 0.5.12, and on a chunk cache all that the window does not reach is evicted",
            ("S0511a", "S0511b"),
            {**PAIRS, "evict_window": _evict(_keep_window_and_page_of_a_tree, "sglang 0.5.14")},
            ("sglang 0.5.14",),
        ),
        Profile(
            "sglang-0.5.17",
            "sglang 0.5.15 to 0.5.18: two deviations, on a tree, too, the window is evicted further, and a prompt may go into "
            "the tree only up to where it parts from one that has lost its window pages",
            ("S0511a", "S0511b"),
            FROM_0_5_17,
            ("sglang 0.5.15", "sglang 0.5.18"),
        ),
        Profile(
            "sglang-0.5.19",
            "sglang 0.5.19 to 0.5.20: as 0.5.17, and a row that is cut below the window cursor is cut at a page boundary",
            ("S0511a", "S0511b"),
            {**FROM_0_5_17, **CUTS_BEFORE_CURSOR},
            ("sglang 0.5.19", "sglang 0.5.20"),
        ),
        Profile(
            "sglang-0.5.23",
            "sglang 0.5.22 to 0.5.23: a first prompt's chunks and an aborted turn's tokens go into the tree, the memory check "
            "counts what a session's turn holds as the session's, the window is evicted further, a prompt may go into the tree "
            "only up to where it parts from one that has lost its window pages, and a row that is cut below the window cursor "
            "is cut at a page boundary",
            ("S0511a",),
            {
                "insert": _instead(
                    "insert",
                    run=_insert_chunk_where_it_parts,
                    applies=_may_insert_chunk,
                    source="sglang 0.5.23",
                ),
                "finish_plain": ENDS_WHERE_IT_PARTS,
                "abort_first": _instead("abort_first", **ENDS_LIKE_A_REQUEST),
                "abort_nth": _instead("abort_nth", **ENDS_LIKE_A_REQUEST),
                "check": _instead("check", run=_check_by_session, source="sglang 0.5.23"),
                "evict_window": _evict(_keep_window_in_pages, "sglang 0.5.23"),
                **CUTS_BEFORE_CURSOR,
            },
            ("sglang 0.5.22", "sglang 0.5.23"),
        ),
    )
}


@lru_cache(maxsize=64)
def profile_of(target: str) -> Profile | None:
    """The profile of the release that a trace's header names, if one is known."""
    return next((profile for profile in PROFILES.values() if profile.is_of(target)), None)


def told_by(target: str) -> Told:
    """What the recorder of a target shows; nothing is expected of one that is not known."""
    profile = profile_of(target)
    return profile.tells if profile is not None else OF_TARGETS.get(target.partition(" ")[0], {})


def _named(target: str) -> tuple[str, tuple[int, ...]]:
    """ "sglang 0.5.10.post1" is ("sglang", (0, 5, 10)); a version that begins with no number is empty."""
    name, _, version = target.partition(" ")
    numbers = takewhile(str.isdecimal, version.split("."))
    return name, tuple(map(int, numbers))
