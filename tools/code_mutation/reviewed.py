"""Mutants of SGLang 0.5.11 of which all claims still hold, and that are not proved to do the same: what was read of each.

Its text is not repeated: mutants go by function, line and kind. `PLACES` is on those that differ from the function as it is in
nothing but attributes that no claim is about, and on what stand-ins are given of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

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
    **dict.fromkeys(("parent", "children"), "No claim is about sessions with branches, which alone have parents and children."),
    "input_embeds": "The claims are about requests without input embeddings.",
}
"""The last name of a place, and why no claim is about it."""

# Verdict and reason, and the mutants by function: lines and kinds.
Row = tuple[str, str, Mapping[str, str]]
ROWS: tuple[Row, ...] = (
)
