"""Mutants of SGLang's streaming sessions that were read by hand. Its text is not repeated: they go by function, line and kind."""

from __future__ import annotations

from mutation.review import ALLOWED, EQUIVALENT, MISSED, Review

SGLANG = "sglang 0.5.11 streaming_session.py"


ON_SGLANG: tuple[Review, ...] = (
    Review(SGLANG, "_is_streaming", ("line 113: drop operand",), EQUIVALENT, "It is only ever asked of a request."),
    Review(
        SGLANG,
        "_is_streaming",
        ("line 113: drop operand (3)",),
        MISSED,
        "No session of another kind, which does not stream, is driven.",
    ),
    Review(
        SGLANG,
        "StreamingSession.find_active_slot",
        ("line 206: drop operand (2)",),
        EQUIVALENT,
        "A slot in the table has a row.",
    ),
    Review(
        SGLANG,
        "StreamingSession.try_match_prefix",
        ("line 252: swap arguments",),
        EQUIVALENT,
        "Slot and request hold the same lengths there: one was just restored from the other.",
    ),
    Review(
        SGLANG,
        "StreamingSession.try_cache_finished_req",
        ("line 319: drop statement",),
        EQUIVALENT,
        "The release's check passes over a request without a row just as well, and nobody else reads the flags.",
    ),
    Review(
        SGLANG,
        "StreamingSession.try_cache_unfinished_req",
        ("line 336: flip flag",),
        EQUIVALENT,
        "The conversion to another type makes a copy anyway.",
    ),
    Review(
        SGLANG,
        "StreamingSession.release_session",
        ("line 386: other sign", "line 386: off by one (2)", "line 386: swap twin"),
        EQUIVALENT,
        "The number is only logged.",
    ),
    Review(
        SGLANG,
        "SessionSlot.restore_to_req",
        ("line 95: drop statement",),
        EQUIVALENT,
        "The prefill sets the length before anybody reads it; where a tail is freed, the match does.",
    ),
    Review(
        SGLANG,
        "StreamingSession.release_session",
        ("line 404: fix condition (2)", "line 404: flip comparison"),
        EQUIVALENT,
        "A free of no slots does nothing.",
    ),
    Review(
        SGLANG,
        "StreamingSession._free_kv_aligned",
        ("line 532: fix condition (2)",),
        EQUIVALENT,
        "A free of no slots does nothing.",
    ),
    Review(
        SGLANG,
        "StreamingSession._free_kv_aligned",
        ("line 530: off by one",),
        EQUIVALENT,
        "Each slot is the begin of a page of one token.",
    ),
    Review(
        SGLANG,
        "StreamingSession._mark_kv_freed",
        ("line 541: fix condition (2)",),
        EQUIVALENT,
        "Nobody marks a request before this function does.",
    ),
    Review(
        SGLANG,
        "StreamingSession.session_held_swa_tokens",
        ("line 441: drop operand",),
        EQUIVALENT,
        "A slot in the table has a row.",
    ),
    Review(
        SGLANG,
        "StreamingSession.session_held_tokens",
        ("line 423: drop operand",),
        EQUIVALENT,
        "Every caller hands a set.",
    ),
    Review(
        SGLANG,
        "StreamingSession.session_held_tokens",
        ("line 425: drop operand",),
        EQUIVALENT,
        "A slot in the table has a row.",
    ),
    Review(
        SGLANG,
        "StreamingSession.session_held_swa_tokens",
        ("line 439: drop operand",),
        EQUIVALENT,
        "Every caller hands a set.",
    ),
    Review(
        SGLANG,
        "StreamingSession.sanity_check",
        ("line 611: drop statement",),
        ALLOWED,
        "It is a check of the release's own, which changes nothing.",
    ),
    Review(
        SGLANG,
        "SessionSlot.restore_to_req",
        ("line 97: off by one",),
        MISSED,
        "No run continues a session whose lock in the window tree ends inside of a path.",
    ),
    Review(
        SGLANG,
        "StreamingSession._free_tail",
        ("line 502: drop statement",),
        MISSED,
        "No run goes back behind what its window has given up: it goes back by one token.",
    ),
    Review(
        SGLANG,
        "StreamingSession.release_session",
        ("line 393: flip comparison", "line 393: fix condition"),
        MISSED,
        "No run closes a session whose lock in the window tree ends inside of a path.",
    ),
)
