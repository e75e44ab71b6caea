"""Mutants of SGLang 0.5.11 of which all claims still hold, and that are not proved to do the same: what was read of each.

Its text is not repeated: mutants go by function, line and kind. `PLACES` is on those that differ from the function as it is in
nothing but attributes that no claim is about, and on what stand-ins are given of these.
"""

from __future__ import annotations

from collections.abc import Mapping

from mutation.review import EQUIVALENT, MISSED, Review

OUTSIDE = "outside"
"""It changes only what no claim is about, and what the claims say that they assume."""

PLACES: Mapping[str, str] = {
    **dict.fromkeys(("retraction_count", "spec_accepted_drafts", "spec_verify_ct"), "Statistics."),
    **dict.fromkeys(
        (
            "extend_logprob_start_len",
            "extend_logprob_start_lens",
            "input_token_logprobs",
            "temp_input_top_logprobs_val",
            "multi_item_delimiter_indices",
        ),
        "Log probabilities are no KV.",
    ),
    **dict.fromkeys(("non_blocking", "pin_memory"), "How a tensor is copied to the device, not what it holds."),
    **dict.fromkeys(("capacity_of_str_len", "timeout"), "Limits of a session that no rule is about."),
    **dict.fromkeys(
        ("parent", "children"), "No claim is about sessions with branches, which alone have parents and children."
    ),
    "input_embeds": "The claims are about requests without input embeddings.",
}
"""The last name of a place, and why no claim is about it."""

# Verdict and reason, and the mutants by function: lines and kinds.
Row = tuple[str, str, Mapping[str, str]]
ROWS: tuple[Row, ...] = (
    (
        MISSED,
        "No rule says what of the window the extend in flight still reads.",
        {"ScheduleBatch.maybe_evict_swa": "line 2637: fix condition; line 2639: off by one"},
    ),
    (
        OUTSIDE,
        "When a window is evicted is left to the server: the claim is that what it evicts may be.",
        {
            "Req.seqlen": "line 906: other sign",
            "ScheduleBatch.maybe_evict_swa": "line 2633: flip comparison; line 2633: off by one; line 2633: fix condition; "
            "line 2635: drop operand (2); line 2639: flip comparison; line 2647: drop statement; line 2649: drop statement",
            "alloc_for_decode": "line 532: drop statement",
            "alloc_for_extend": "line 441: drop statement",
            "EagleDraftInputV2Mixin.prepare_for_decode": "line 97: drop statement",
        },
    ),
    (
        OUTSIDE,
        "The claim is about servers with a window, and about steps and extends.",
        {"ScheduleBatch.maybe_evict_swa": "line 2614: fix condition (2); line 2635: drop operand"},
    ),
    (
        OUTSIDE,
        "How much the tree evicts after a retract is left to the server.",
        {
            "ScheduleBatch.release_req": "line 2219: swap arguments; line 2219: off by one (3); line 2219: drop statement"
        },
    ),
    (
        OUTSIDE,
        "The claim about the window pool's terms is not proved of this release.",
        {
            "SchedulerRuntimeCheckerMixin._get_total_uncached_sizes": "line 405: drop statement; line 405: off by one; "
            "line 405: other sign (2); line 405: swap twin; line 406: off by one (2)"
        },
    ),
    (
        OUTSIDE,
        "Statistics.",
        {
            "SchedulerOutputProcessorMixin._resolve_spec_overlap_token_ids": "line 366: other sign; line 381: drop statement"
        },
    ),
    (
        OUTSIDE,
        "The tree is asked for more room than is needed.",
        {
            "alloc_paged_token_slots_extend": "line 368: off by one",
            "alloc_paged_token_slots_decode": "line 505: off by one; line 506: off by one",
        },
    ),
    (
        OUTSIDE,
        "The block size for which the kernel is compiled.",
        {"PagedTokenToKVPoolAllocator.alloc_extend": "line 435: off by one (4)"},
    ),
    (OUTSIDE, "How the sampling is set up.", {"ScheduleBatch.prepare_for_extend": "line 1954: swap arguments"}),
    (
        OUTSIDE,
        "What the client is answered.",
        {"SessionController.open": "line 301: swap arguments; line 301: flip flag"},
    ),
    (
        OUTSIDE,
        "The last turn has ended, and no rule is about what it still names.",
        {"SessionController._close": "line 337: fix condition; line 339: drop statement"},
    ),
    (
        OUTSIDE,
        "The claims take the free list to have enough pages: when the others join it is not looked at.",
        {"PagedTokenToKVPoolAllocator.alloc_decode": "line 464: off by one (2)"},
    ),
    (
        OUTSIDE,
        "Of a tensor and its copy on the CPU the claims see the same values.",
        {
            "alloc_for_extend": "line 482: swap arguments",
            "alloc_paged_token_slots_extend": "line 378: swap arguments",
        },
    ),
    (
        EQUIVALENT,
        "`req_to_token` is of another type: its indices are copied in any case.",
        {
            "RadixCache.cache_finished_req": "line 511: flip flag",
            "RadixCache.cache_unfinished_req": "line 548: flip flag",
            "ChunkCache.cache_unfinished_req": "line 88: flip flag",
            "SWARadixCache.cache_unfinished_req": "line 496: flip flag",
            "SWARadixCache.cache_finished_req": "line 450: flip flag",
            "StreamingSession.try_cache_unfinished_req": "line 336: flip flag",
        },
    ),
    (
        EQUIVALENT,
        "Where the row holds no more than the tree, nothing is joined to the tree's indices.",
        {
            "RadixCache.cache_unfinished_req": "line 592: flip comparison; line 592: fix condition (2)",
            "SWARadixCache.cache_unfinished_req": "line 533: flip comparison",
        },
    ),
    (
        OUTSIDE,
        "By which priority the tree evicts is left to the server.",
        {"RadixCache.cache_unfinished_req": "line 556: drop operand; line 556: drop operand (2)"},
    ),
    (
        EQUIVALENT,
        "An empty list adds no page.",
        {
            "BaseTokenToKVPoolAllocator.merge_and_sort_free": "line 83: flip comparison; line 83: fix condition (2)",
            "TokenToKVPoolAllocator.free": "line 156: off by one",
            "PagedTokenToKVPoolAllocator.free": "line 494: drop statement",
        },
    ),
    (
        EQUIVALENT,
        "The session is gone behind it, and `_close` does not read the mark.",
        {"SessionController.maybe_reap": "line 374: drop statement"},
    ),
    (
        EQUIVALENT,
        "The match of the queued request sets the prefix anew before anybody reads it.",
        {"Req.reset_for_retract": "line 1230: off by one (3)"},
    ),
)

REVIEWS: tuple[Review, ...] = tuple(
    Review("", function, tuple(names.split("; ")), verdict, reason)
    for verdict, reason, mutants in ROWS
    for function, names in mutants.items()
)
