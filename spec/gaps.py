"""What a recorder may say that it cannot see (`Header.gaps`). A replay refuses a gap that is not in this table.

A gap weakens a verdict, so a trace cannot make one up: whoever reads the verdict finds here all that may be left out.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kvproof.spec.trace import Observed

UNKNOWN_RELEASE = "SGLang {release} is not among the releases that were looked at; it is driven by what it has"
WINDOW_MAP = "the map from full to window pages"
WINDOW_PAGES = "pages of the window pool: the trace has the cursor and the terms of the check, not the page ids"
BUSY_CHECK = "the release's own memory check while busy"
CHECK_TERMS = "the terms of the memory check"
INFLIGHT = "inflight: this release has no in-flight marker"
CLOSING = "closing: this release does not say whether a close waits"
ONE_RECORD = "slot_held and slot_* while a turn runs on the slot: both share one record, shown as the turn's lengths"
CHECKPOINT_WHILE_RUNNING = (
    "checkpoint_len: observed after finish, abort and close only, as the session names its turn in flight "
    "where later releases keep the last successful one"
)
PROTECTED_LEN_OF_RETRACTED = (
    "cache_protected_len after a retract: the value of before stays and is not read until the next match sets it"
)
NO_LENGTHS = "kv_committed_len, kv_allocated_len and cache_protected_len: this checkout's requests do not keep them"
NO_PROTECTED_LEN = "cache_protected_len: on a chunk cache the tree owns nothing, and nothing reads the value"


class Unseen(NamedTuple):
    """What a gap leaves out of a trace."""

    values: frozenset[str] = frozenset()
    """Fields of `Observed`, or the `terms` of a check; none: what is no single value of an event."""
    events: frozenset[str] = frozenset()
    """After which events; none: after any."""
    is_on_the_slot: bool = False
    """Only while a turn runs on the slot."""


_OF_THE_SLOT = frozenset(name for name in Observed.model_fields if name.startswith("slot_"))
GAPS: dict[str, Unseen] = {
    UNKNOWN_RELEASE: Unseen(),
    WINDOW_MAP: Unseen(),
    WINDOW_PAGES: Unseen(),
    BUSY_CHECK: Unseen(),
    CHECK_TERMS: Unseen(frozenset(("terms",)), frozenset(("check",))),
    INFLIGHT: Unseen(frozenset(("inflight",))),
    CLOSING: Unseen(frozenset(("closing",))),
    ONE_RECORD: Unseen(_OF_THE_SLOT, is_on_the_slot=True),
    CHECKPOINT_WHILE_RUNNING: Unseen(frozenset(("checkpoint_len",))),
    PROTECTED_LEN_OF_RETRACTED: Unseen(frozenset(("cache_protected_len",)), frozenset(("retract",))),
    NO_LENGTHS: Unseen(frozenset(("kv_committed_len", "kv_allocated_len", "cache_protected_len"))),
    NO_PROTECTED_LEN: Unseen(frozenset(("cache_protected_len",))),
}
_KNOWN = re.compile("|".join(re.escape(gap).replace(r"\{release\}", r"[\w.+-]{1,40}") for gap in GAPS))


def is_known(gap: str) -> bool:
    """Whether a recorder may say so."""
    return _KNOWN.fullmatch(gap) is not None
