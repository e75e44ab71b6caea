"""What waits for what, when requests do not end: told from the model's state, so for every target in the same words."""

from __future__ import annotations

from collections.abc import Sequence

from kvproof.conformance.replay.left_open import open_turns
from kvproof.conformance.replay.page_book import FREE, TREE
from kvproof.conformance.replay.replayer import Replayer
from kvproof.spec.state import NONE, PREFILL, RUNNING, WAITING, Ledger, fill_len


def standstill(replayer: Replayer, unfinished: Sequence[str]) -> list[str]:
    """A line for each request that is not over, then who holds the pages and the rows."""
    known = dict(open_turns(replayer))
    lines = [_request(replayer, name, key, replayer.ledgers[key]) for name, key in known.items()]
    unheard = [name for name in unfinished if not _is_among(name, known)]
    lines += [f"{name}: no event told of it" for name in unheard]
    return [*lines, _pages(replayer), *_window_pages(replayer), _rows(replayer)]


def _is_among(name: str, known: dict[str, str]) -> bool:
    """A target may add a mark to the names that it was given."""
    return any(told.startswith(name) for told in known)


def _request(replayer: Replayer, name: str, key: str, ledger: Ledger) -> str:
    whose = f"{name} of {key}" if key.startswith("session") else name
    due = f", and the results of {ledger.pending} steps are not in" if ledger.pending else ""
    if ledger.phase == WAITING:
        return f"{whose} waits in the queue: {_lacks(replayer, ledger)}{due}"
    doing = {PREFILL: "is in its prefill", RUNNING: "decodes"}[ledger.phase]
    held = replayer.book.count(key)
    return f"{whose} {doing}: {fill_len(ledger)} tokens, {held} pages of its own{due}"


def _lacks(replayer: Replayer, ledger: Ledger) -> str:
    """Which of the things that a prompt needs is not there. A scheduler may keep back more than that."""
    d, book = replayer.d, replayer.book
    needed = d.ceil_pages(fill_len(ledger)) - d.floor_pages(ledger.prefix_len)
    obtainable = book.count(FREE) + _unlocked(replayer)
    lacking = [f"{needed} pages, of which {obtainable} are free or can be evicted"] if needed > obtainable else []
    if not ledger.slot_held and len(_users(replayer)) >= replayer.report.config.rows:
        lacking.append("a row, of which none is free")
    if lacking:
        return f"for {' and '.join(lacking)}"
    return f"the {needed} pages that its {fill_len(ledger)} tokens need could be had, and a row"


def _pages(replayer: Replayer) -> str:
    book = replayer.book
    held = [f"{key} {_idle(replayer, key)}{book.count(key)}" for key in replayer.ledgers if book.count(key)]
    parts = [
        f"{book.count(FREE)} free",
        f"{_unlocked(replayer)} of the tree and not locked",
        f"{book.protected} locked",
        *held,
    ]
    return f"pages, of {book.pool_pages}: {'; '.join(parts)}"


def _window_pages(replayer: Replayer) -> list[str]:
    window = replayer.book.window
    if not window.is_followed:
        return []
    return [f"window pages, of {replayer.report.config.window_pages}: {window.free_count()} free"]


def _rows(replayer: Replayer) -> str:
    users = [f"{key} {_idle(replayer, key)}".strip() for key in _users(replayer)]
    return f"rows, of {replayer.report.config.rows}: {len(users)} held" + (f", by {', '.join(users)}" if users else "")


def _users(replayer: Replayer) -> list[str]:
    return [key for key in replayer.ledgers if replayer.book.table(key) is not None]


def _idle(replayer: Replayer, key: str) -> str:
    """What is held until somebody closes the session."""
    is_idle = key.startswith("session") and replayer.ledgers[key].phase == NONE
    return "(idle until it is closed) " if is_idle else ""


def _unlocked(replayer: Replayer) -> int:
    return replayer.book.count(TREE) - replayer.book.protected
