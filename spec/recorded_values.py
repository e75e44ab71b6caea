"""What the recorders tell: for each rule, the values that an event which it judges shows.

A trace that shows less was recorded by something else, or was changed; unless its header names what is missing under `gaps`, a
replay does not pass it. Derived from the recorders (`impl/observe.py`, `conformance/adapters/`) and from what they recorded.

Conditions that hold for all are not repeated here: the values of a session or a slot are shown where the event names a session,
the lengths of a slot where it has a row, window cursors where there is a window.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvproof.spec.state import FIELDS
from kvproof.spec.trace import Observed

Told = Mapping[str, frozenset[str]]
"""Of each rule the values that its events show: fields of `Observed`, parameters that are compared, `shared` of an insert,
`terms` and `busy` of a check, the `step` of a launch."""

_SESSION = (
    frozenset(f.name for f in FIELDS if f.metadata["group"] in ("session", "slot")) & Observed.model_fields.keys()
)
_LENGTHS = frozenset(("kv_committed_len", "kv_allocated_len", "cache_protected_len"))
_TURN = _LENGTHS | {"swa_evicted_seqlen"}
_DECODE = _LENGTHS | {"output_len"}
_RUN = _TURN | {"output_len"}
_PREFILL = _RUN | {"prefix_len"}
_MATCH = _TURN | {"prefix_len", "fill_len", "lent"}
_STEP = frozenset(("step",))
_CHECK = frozenset(("terms", "busy"))
_RESULT = frozenset(("output_len", "tokens"))
_ABORTS = ("abort_first", "abort_nth", "abort_queued", "abort_retracted")


def _rules(*names: str, told: frozenset[str]) -> dict[str, frozenset[str]]:
    return dict.fromkeys(names, told)


_LATE = _rules("late_result", "result_of_ended", told=frozenset(("tokens",)))
_COMMON: Told = {
    **_rules("create", "refuse", told=_SESSION | {"admitted", "attached"}),
    **_rules("open", "defer_close", "finish", *_ABORTS, told=_SESSION),
    **_rules("match_tree", "match_slot", told=_SESSION | _MATCH | {"attached"}),
    **_rules("pass_by", told=_SESSION | {"attached"}),
    "extend": _SESSION | _PREFILL | _STEP,
    "stash": _SESSION | _PREFILL,
    "insert": _SESSION | _PREFILL | {"shared"},
    **_rules("evict_window", "retract", "retract_plain", told=_SESSION | _TURN),
    "verify": _SESSION | _RUN,
    "finish_plain": frozenset(("finished_len",)),
    "check": _CHECK,
}
OF_REFERENCE: Told = {
    **_COMMON,
    **{rule: _COMMON[rule] | {"prefix_id"} for rule in ("extend", "insert", "finish_plain")},
    "close": _SESSION,
    "detach": _SESSION | {"attached", "fill_len"},
    **_rules("decode", "prepare_round", told=_SESSION | _RUN | _STEP),
    **_rules("result", "chunk_result", told=_SESSION | _RUN | _RESULT),
    **_LATE,
}
OF_SGLANG: Told = {
    **_COMMON,
    "close": _SESSION - {"checkpoint_len"},  # the session is gone
    "detach": _SESSION | {"attached", "lent", "fill_len"},
    # Many at once: of the session only what an event since the last one may have changed.
    **_rules("decode", "prepare_round", told=_DECODE | _STEP),
    **_rules("result", "chunk_result", told=_RESULT),
    **_LATE,
}
_NOT_OF_EVERY_CHECKOUT = frozenset(("cache_protected_len",))
OF_SGLANG_JAX: Told = {
    **_rules("match_tree", told=frozenset(("lent", "prefix_len", "fill_len"))),
    "extend": (_PREFILL - _NOT_OF_EVERY_CHECKOUT) | _STEP,
    **_rules("stash", "insert", told=_PREFILL - _NOT_OF_EVERY_CHECKOUT),
    **_rules("evict_window", "retract_plain", told=_TURN - _NOT_OF_EVERY_CHECKOUT),
    "decode": (_RUN - _NOT_OF_EVERY_CHECKOUT) | _STEP,
    **_rules("result", "chunk_result", told=_RESULT),
    **_LATE,
    "finish_plain": frozenset(("finished_len",)),
    "check": _CHECK,
}
OF_TARGETS: Mapping[str, Told] = {"reference": OF_REFERENCE, "sglang-jax": OF_SGLANG_JAX}
"""Targets that have no releases with profiles, by the first word of what their traces name as target."""

WHERE_NO_TURN_IS_ON_THE_SLOT = frozenset(
    ("open", "finish", "close", "match_tree", "detach", "retract", "abort_first", "abort_nth")
)
"""Rules after which no turn runs on the slot's row: there a slot is shown also where the two share one record."""
