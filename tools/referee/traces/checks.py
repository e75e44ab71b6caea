"""Memory checks that lie: totals, terms that balance, free lists with a page twice."""

from __future__ import annotations

from referee.cases import Edits
from referee.traces.trace import Trace, has

CHECKS = Edits("memory checks")


@CHECKS.wrong("checked", must="I2: the total is the pool")
def total_of_another_pool(t: Trace) -> None:
    """The total that the server compares with is not its pool: its own check is always right, or always wrong."""
    t.last("check")["terms"]["total"] -= 7


@CHECKS.wrong("window", must="I2: the total is the pool")
def window_total_of_another_pool(t: Trace) -> None:
    """The window pool's total is not that of the header."""
    t.last("check", where=has("window_terms"))["window_terms"]["total"] += 7


@CHECKS.wrong("checked", must="I2")
def held_and_uncached_balance(t: Trace) -> None:
    """A page is counted as held instead of running: the sum is right."""
    terms = t.last("check", where=lambda e: e["terms"]["uncached"] >= 1)["terms"]
    terms["session_held"] += 1
    terms["uncached"] -= 1


@CHECKS.wrong("checked", must="I2")
def available_and_evictable_balance(t: Trace) -> None:
    """A free page counts as evictable: the sum is right."""
    terms = t.last("check")["terms"]
    terms["available"] -= 1
    terms["evictable"] += 1


@CHECKS.wrong("checked", must="I13")
def evictable_and_protected_balance(t: Trace) -> None:
    """A locked page counts as evictable: the next eviction takes what a row reads."""
    terms = t.last("check", where=lambda e: e["terms"]["protected"] >= 1)["terms"]
    terms["evictable"] += 1
    terms["protected"] -= 1


@CHECKS.wrong("window", must="I13: of the window pool")
def window_evictable_and_protected_balance(t: Trace) -> None:
    """The window pool's locked pages are counted with the evictable ones, by a counter that is no recount."""
    terms = t.last("check", where=lambda e: "window_terms" in e)["window_terms"]
    terms["evictable"] += 5
    terms["protected"] -= 5


@CHECKS.wrong("checked", must="I2: no term is below zero")
def terms_below_zero(t: Trace) -> None:
    """Two terms are huge and opposite: a counter ran below zero and another one hides it."""
    terms = t.last("check")["terms"]
    terms["evictable"] -= 50
    terms["protected"] += 50


@CHECKS.wrong("window", must="I2: no term is below zero")
def window_terms_below_zero(t: Trace) -> None:
    """A counter of the window pool ran below zero and another one hides it."""
    terms = t.last("check", where=lambda e: "window_terms" in e)["window_terms"]
    terms["evictable"] -= 50
    terms["protected"] += 50


@CHECKS.wrong("checked", must="I2")
def one_page_is_missing(t: Trace) -> None:
    """A page is in no term: it leaked."""
    t.last("check")["terms"]["available"] -= 1


@CHECKS.wrong("checked", must="I1")
def page_twice_in_the_free_list(t: Trace) -> None:
    """A page is in the free list twice: two requests will get it."""
    pages = t.last("check", where=has("free_list"))["free_list"]
    pages.append(pages[0])


@CHECKS.wrong("checked", must="I1")
def page_twice_for_another(t: Trace) -> None:
    """The free list has one page twice and another not at all: its length is right."""
    pages = t.last("check", where=has("free_list"))["free_list"]
    pages[0] = pages[1]


@CHECKS.wrong("checked", must="I1")
def free_list_with_an_owned_page(t: Trace) -> None:
    """A page of a running turn is in the free list."""
    taken = t.first("extend", where=has("alloc"))["alloc"][-1]
    t.next_of(t.first("extend", where=has("alloc")), "check")["free_list"].append(taken)


@CHECKS.wrong("checked", must="I1")
def free_list_with_a_missing_page(t: Trace) -> None:
    """A page that nobody owns is in no free list: it leaked, and the server's own count does not show it."""
    t.last("check", where=has("free_list"))["free_list"].pop()


@CHECKS.wrong("window", must="I1")
def window_free_list_with_a_missing_page(t: Trace) -> None:
    """A window page that no page names is in no free list."""
    t.last("check", where=has("window_free_list"))["window_free_list"].pop()


@CHECKS.wrong("checked", must="I1")
def free_list_beyond_the_pool(t: Trace) -> None:
    """The free list has a page that the pool does not have."""
    t.last("check", where=has("free_list"))["free_list"].append(t.config["pool_pages"] + 1)


@CHECKS.wrong("checked", must="I1")
def free_list_with_the_padding_page(t: Trace) -> None:
    """The free list has page 0: it will be handed out."""
    t.last("check", where=has("free_list"))["free_list"].append(0)


@CHECKS.wrong("window", must="I1")
def window_page_twice_in_the_free_list(t: Trace) -> None:
    """A window page is in its free list twice."""
    pages = t.last("check", where=has("window_free_list"))["window_free_list"]
    pages.append(pages[0])


@CHECKS.wrong("checked", must="I2: busy iff a turn runs")
def busy_is_denied(t: Trace) -> None:
    """The check says that the server is idle while a turn runs: which formula it used is not what happened."""
    t.first("check", where=lambda e: e["params"].get("busy") is True)["params"]["busy"] = False


@CHECKS.wrong("checked", must="refused: terms only on a check")
def terms_of_a_decode(t: Trace) -> None:
    """A decode step carries terms of a memory check, which nobody compares."""
    zero = dict.fromkeys(("available", "evictable", "protected", "session_held", "uncached", "total"), 0)
    t.first("decode")["terms"] = zero


@CHECKS.wrong("sglang 0.5.23", must="I2")
def real_check_that_balances(t: Trace) -> None:
    """A real server's check with a page moved from free to evictable."""
    terms = t.last("check", where=has("terms"))["terms"]
    terms["available"] -= 1
    terms["evictable"] += 1
