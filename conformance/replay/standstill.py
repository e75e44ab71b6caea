"""What waits for what, and who holds the pages and the rows: by the model's state, for every target in the same words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvproof.conformance.replay.liveness import PAGES, ROW, WINDOW_PAGES, Liveness
from kvproof.conformance.replay.page_book import FREE
from kvproof.spec.state import NONE, PREFILL, RUNNING, WAITING, fill_len


def standstill(live: Liveness, turns: Mapping[str, str], unfinished: Sequence[str] = ()) -> list[str]:
    """A line for each turn that is not over, then who holds the pages and the rows. `turns`: their ledgers.

    `unfinished`: what the target itself calls unfinished.
    """
    lines = [turn_in_words(live, name, key) for name, key in turns.items()]
    unheard = [name for name in unfinished if not _is_among(name, turns)]
    lines += [f"{name}: no event told of it" for name in unheard]
    return [*lines, *who_holds(live)]


def cause_of(live: Liveness, turns: Mapping[str, str], *, is_marked_full: bool = False) -> str:
    """Why nothing continues, in one sentence without names or numbers: of the first turn that waits, else of a turn that runs,
    else of a close. `is_marked_full`: the scheduler said last that it takes no request into its batch."""
    waiting = (key for key in turns.values() if live.ledgers[key].phase != RUNNING)
    if (key := next(waiting, None)) is not None:
        return _why_not_run(live, key, is_marked_full)
    if turns:
        return "a turn that runs gets no step"
    if any(ledger.closing for ledger in live.ledgers.values()):
        return "a close is not done"
    return MARKED_FULL if is_marked_full else "no event told of what is left"


MARKED_FULL = "the batch is marked as full"


def _why_not_run(live: Liveness, key: str, is_marked_full: bool) -> str:
    whose = "a turn" if live.ledgers[key].phase == WAITING else "the next chunk of a turn"
    if lacking := live.lacking(key, live.missing_pages(key)):
        return f"no {' and no '.join(lacking)} for {whose}"
    is_idle = not live.users() and live.obtainable() == live.book.pool_pages
    if is_idle and live.book.window.is_followed:
        return f"{whose} is not run although the window pool is free"
    if is_marked_full:
        return f"{whose} is not run: {MARKED_FULL}"
    return f"{whose} is not run although {'nothing is held' if is_idle else 'there is room'}"


def who_holds(live: Liveness) -> list[str]:
    """The pages and the rows, by who has them."""
    return [_pages(live), *_window_pages(live), _rows(live)]


def _is_among(name: str, known: Mapping[str, str]) -> bool:
    """A target may add a mark to the names that it was given."""
    return any(told.startswith(name) for told in known)


def turn_in_words(live: Liveness, name: str, key: str) -> str:
    """What a turn does, or what it lacks."""
    ledger = live.ledgers[key]
    whose = f"{name} of {key}" if key.startswith("session") else name
    due = f", and the results of {ledger.pending} steps are not in" if ledger.pending else ""
    if ledger.phase == WAITING:
        return f"{whose} waits in the queue: {_lacks(live, key)}{due}"
    doing = {PREFILL: "is in its prefill", RUNNING: "decodes"}[ledger.phase]
    held = live.book.count(key)
    return f"{whose} {doing}: {fill_len(ledger)} tokens, {held} pages of its own{due}"


def _lacks(live: Liveness, key: str) -> str:
    """Which of the things that a prompt needs is not there. A scheduler may keep back more than that."""
    needed, tokens = max(0, live.missing_pages(key)), fill_len(live.ledgers[key])
    there = {
        ROW: "a row, of which none is free",
        PAGES: f"{needed} pages, of which {live.obtainable()} are free or can be evicted",
        WINDOW_PAGES: f"{needed} window pages, of which {live.book.window.free_count()} are free",
    }
    if lacking := live.lacking(key, needed):
        return f"for {' and '.join(there[what] for what in lacking)}"
    return f"the {needed} more pages for its {tokens} tokens could be had, and a row"


def _pages(live: Liveness) -> str:
    book = live.book
    held = [f"{key} {_idle(live, key)}{book.count(key)}" for key in sorted(live.ledgers) if book.count(key)]
    parts = [
        f"{book.count(FREE)} free",
        f"{live.evictable()} of the tree and not locked",
        f"{book.protected} locked",
        *held,
    ]
    return f"pages, of {book.pool_pages}: {'; '.join(parts)}"


def _window_pages(live: Liveness) -> list[str]:
    window = live.book.window
    if not window.is_followed:
        return []
    return [f"window pages, of {window.pool_pages}: {window.free_count()} free"]


def _rows(live: Liveness) -> str:
    users = [f"{key} {_idle(live, key)}".strip() for key in live.users()]
    return f"rows, of {live.rows}: {len(users)} held" + (f", by {', '.join(users)}" if users else "")


def _idle(live: Liveness, key: str) -> str:
    """What is held until somebody closes the session."""
    is_idle = key.startswith("session") and live.ledgers[key].phase == NONE
    return "(idle until it is closed) " if is_idle else ""
