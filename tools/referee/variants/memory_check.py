"""Terms of the memory check that balance each other, and a check that asks nothing."""

from __future__ import annotations

from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.actions.memory_check import report
from kvproof.spec.domain import Domain
from kvproof.spec.effects import Report, true_pages, true_window_pages
from kvproof.spec.state import Ledger, is_live
from referee.cases import Variants

MEMORY_CHECK = Variants("terms of the memory check")


@MEMORY_CHECK.wrong("check", must="I2")
def terms_that_balance(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """One page too many is held and one too few is uncached: the sum is right, and both alarms are wrong."""
    right = report(d, s)
    return Step(
        s,
        effects=(Report(right.session_held + 1, right.uncached - 1, right.window_held, right.window_uncached),),
    )


@MEMORY_CHECK.wrong("check", must="I2")
def held_counts_what_runs(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Every page counts in each term, the other one takes it back: a term is negative."""
    right = report(d, s)
    both = right.session_held + right.uncached
    return Step(s, effects=(Report(both + both, 0 - both, right.window_held, right.window_uncached),))


@MEMORY_CHECK.wrong("check", must="I2")
def window_terms_that_balance(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The two terms of the window pool are off by one page each, in opposite directions."""
    right = report(d, s)
    return Step(
        s,
        effects=(Report(right.session_held, right.uncached, right.window_held - 1, right.window_uncached + 1),),
    )


@MEMORY_CHECK.wrong("check", must="I2")
def idle_slot_counts_as_running(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Pages of an idle slot count as those of a running turn: an operator looks for a request that does not exist."""
    right = report(d, s)
    all_pages = right.session_held + right.uncached
    return Step(s, effects=(Report(0, all_pages, right.window_held, right.window_uncached),))


@MEMORY_CHECK.wrong("check", must="I2")
def check_reads_nothing(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The check compares nothing: no leak is ever reported."""
    return Step(s)


@MEMORY_CHECK.wrong("check", must="a rule reads no ghost")
def check_reads_the_truth(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The terms are copied from ghost fields, which no server has: the check can never be wrong, and says nothing."""
    window = true_window_pages(d, s)
    return Step(s, effects=(Report(true_pages(s), 0, window, 0),))


@MEMORY_CHECK.wrong("check", must="I2")
def slot_counts_while_lent(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A lent slot counts beside the turn that runs on it (sglang #22753): false alarms on every step."""
    pages = d.ceil_pages(s.slot_kv_allocated_len) - d.floor_pages(s.slot_cache_protected_len)
    held = d.where(s.slot_held, pages, 0)
    right = report(d, s)
    return Step(s, effects=(Report(held, right.uncached, right.window_held, right.window_uncached),))


@MEMORY_CHECK.wrong("check", must="I2")
def pages_are_rounded_down(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A running turn's last page counts only when it is full: a leak of one page hides behind it."""
    pages = d.floor_pages(s.kv_allocated_len) - d.floor_pages(s.cache_protected_len)
    right = report(d, s)
    live = d.where(is_live(d, s), pages, 0)
    return Step(s, effects=(Report(right.session_held, live, right.window_held, right.window_uncached),))


@MEMORY_CHECK.wrong("check", must="I2")
def window_counts_what_was_evicted(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The window pool's terms count every page of the row, evicted ones too."""
    right = report(d, s)
    return Step(s, effects=(Report(right.session_held, right.uncached, right.session_held, right.uncached),))


@MEMORY_CHECK.wrong("check", must="I2")
def two_reports(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The check reports twice, first right and then nothing: the second one is what the server sees."""
    return Step(s, effects=(report(d, s), Report(0, 0, 0, 0)))
