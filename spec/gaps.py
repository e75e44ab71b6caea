"""What a recorder may say that it cannot see (`Header.gaps`). A replay refuses a gap that is not in this table.

A gap weakens a verdict, so a trace cannot make one up: whoever reads the verdict finds here all that may be left out.
"""

from __future__ import annotations

import re

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

GAPS: tuple[str, ...] = (
    UNKNOWN_RELEASE,
    WINDOW_MAP,
    WINDOW_PAGES,
    BUSY_CHECK,
    CHECK_TERMS,
    INFLIGHT,
    CLOSING,
    ONE_RECORD,
    CHECKPOINT_WHILE_RUNNING,
    PROTECTED_LEN_OF_RETRACTED,
    NO_LENGTHS,
    NO_PROTECTED_LEN,
)
_KNOWN = re.compile("|".join(re.escape(gap).replace(r"\{release\}", r"[\w.+-]{1,40}") for gap in GAPS))


def is_known(gap: str) -> bool:
    """Whether a recorder may say so."""
    return _KNOWN.fullmatch(gap) is not None
