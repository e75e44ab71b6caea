"""Values after an event that are left out, or wrong by one."""

from __future__ import annotations

from referee.cases import Change, Edit, Edits
from referee.traces.trace import Trace, has, of_no_session, of_session

UNSEEN = Edits("fields of `after` are deleted")
OFF_BY_ONE = Edits("lengths and counts that are off by one")


@UNSEEN.wrong("closes", must="incomplete: nothing was observed")
def no_field_at_all(t: Trace) -> None:
    """The recorder reads nothing after any event: whatever the server's lengths were, this trace looks right."""
    for event in t.events:
        event.pop("after", None)


@UNSEEN.wrong("closes", must="incomplete: slots were not observed")
def no_slot_lengths(t: Trace) -> None:
    """A release renamed the slot's lengths, the recorder found none: no slot was compared with anything."""
    t.forget("slot_kv_committed_len", "slot_kv_allocated_len", "slot_cache_protected_len", "slot_swa_evicted_seqlen")


@UNSEEN.wrong("retracts", must="incomplete: C was not observed")
def no_committed_len(t: Trace) -> None:
    """kv_committed_len was never read: an off-by-one in it (sglang #22651) would look the same."""
    t.forget("kv_committed_len")


@UNSEEN.wrong("retracts", must="incomplete: A was not observed")
def no_allocated_len(t: Trace) -> None:
    """kv_allocated_len was never read: pages behind it may leak."""
    t.forget("kv_allocated_len")


@UNSEEN.wrong("duplicates", must="incomplete: R was not observed")
def no_protected_len(t: Trace) -> None:
    """cache_protected_len was never read: the server may free from any position (sglang-jax #994)."""
    t.forget("cache_protected_len")


@UNSEEN.wrong("busy", must="incomplete: the marker was not observed")
def no_marker(t: Trace) -> None:
    """The in-flight marker was never read: one that stays set (sglang #22790) would look the same."""
    t.forget("inflight")


@UNSEEN.wrong("closes", must="incomplete: closing was not observed")
def no_closing(t: Trace) -> None:
    """Whether a close waits was never read: a lost close would look the same."""
    t.forget("closing")


@UNSEEN.wrong("aborts", must="incomplete: the checkpoint was not observed")
def no_checkpoint(t: Trace) -> None:
    """The checkpoint was never read: an abort that advances it would look the same."""
    t.forget("checkpoint_len")


@UNSEEN.wrong("sessions", must="incomplete: the output was not observed")
def no_output_len(t: Trace) -> None:
    """The output was never counted: tokens that are lost or doubled would look the same."""
    t.forget("output_len")


@UNSEEN.wrong("sessions", must="incomplete: the prefix was not observed")
def no_prefix_len(t: Trace) -> None:
    """prefix_len was never read: a session's turn may reuse anything."""
    t.forget("prefix_len", where=of_session)


@UNSEEN.wrong("busy", must="incomplete: whether a turn is attached was not observed")
def no_admission(t: Trace) -> None:
    """Neither the answer to a create nor `attached` was read: a second turn may have been admitted."""
    t.forget("attached")
    for event in t.all("create"):
        event["params"].pop("admitted")


@UNSEEN.wrong("window", must="incomplete: the cursor was not observed")
def no_window_cursor(t: Trace) -> None:
    """The window cursor was never read, in the turn or in the slot (sglang #22900)."""
    t.forget("swa_evicted_seqlen", "slot_swa_evicted_seqlen")


@UNSEEN.wrong("sessions with F20070", must="incomplete: R was not observed")
def a_real_bug_unseen(t: Trace) -> None:
    """A server with sglang #20070, and the one field that shows the bug is not recorded."""
    t.forget("cache_protected_len")


@UNSEEN.wrong("aborts with F22790d", must="incomplete: the checkpoint was not observed")
def a_real_abort_unseen(t: Trace) -> None:
    """A server whose aborts advance the checkpoint (sglang #22790), and the checkpoint is not recorded."""
    t.forget("checkpoint_len")


@UNSEEN.wrong("retracts with S0511a", must="incomplete: marker and checkpoint were not observed")
def a_real_retract_unseen(t: Trace) -> None:
    """A server whose retracts end the turn (sglang 0.5.11), and neither marker nor checkpoint is recorded."""
    t.forget("inflight", "checkpoint_len")


@UNSEEN.wrong("checked", must="incomplete: no term was read")
def checks_without_terms(t: Trace) -> None:
    """Every memory check is recorded and none has terms or free lists: nothing was compared, and `check` counts as covered."""
    for event in t.all("check"):
        event.pop("terms", None)
        event.pop("free_list", None)


@UNSEEN.wrong("sglang 0.5.11", must="incomplete: lengths were not observed")
def a_release_that_renamed_its_lengths(t: Trace) -> None:
    """A real release whose request fields were renamed: only flags are left, and the trace has no gap that says so."""
    lengths = ("kv_committed_len", "kv_allocated_len", "cache_protected_len", "prefix_len", "output_len")
    t.forget(*lengths, where=of_session)


@UNSEEN.wrong("sessions", must="incomplete: the tree's pages were not observed")
def inserts_without_pages(t: Trace) -> None:
    """No insert tells which pages of the row are the tree's afterwards: row and tree may name different KV."""
    for event in t.all("insert"):
        event.pop("shared", None)


def _shifted(base: str, action: str, name: str, by: int, harm: str, must: str, in_params: bool = False) -> None:
    """One value, in the middle of the events that have it, off by one."""

    def change(t: Trace) -> None:
        where = "params" if in_params else "after"
        events = t.all(action, where=lambda e: (e.get(where) or {}).get(name) is not None)
        events[len(events) // 2][where][name] += by

    _add(f"{name}_of_{action}_{'plus' if by > 0 else 'minus'}_one", base, change, harm, must)


def _add(name: str, base: str, change: Change, why: str, must: str) -> None:
    OFF_BY_ONE[name] = Edit(name, OFF_BY_ONE.topic, why, must, base, change)


_shifted("sessions", "decode", "kv_committed_len", 1, "C counts a position that was not claimed (sglang #22651).", "I3")
_shifted("sessions", "decode", "kv_committed_len", -1, "C lags behind: the next step overwrites a token's KV.", "I3")
_shifted(
    "rounds in flight", "decode", "kv_allocated_len", 1, "A round reserved a token more than it took pages for.", "I1"
)
_shifted("retracts", "extend", "kv_allocated_len", -1, "A is shorter than the row: its last page leaks.", "I3")
_shifted(
    "sessions", "insert", "cache_protected_len", -1, "R inside a page: the release frees a page of the tree.", "I12"
)
_shifted("sessions", "match", "prefix_len", 1, "The match reuses the token that must be run.", "I12")
_shifted("sessions", "result", "output_len", 1, "A token was counted that no result brought.", "I17")
_shifted("aborts", "finish", "slot_kv_committed_len", 1, "The slot hands on a token without KV (sglang #22897).", "I8")
_shifted("aborts", "finish", "slot_kv_allocated_len", 1, "The slot claims a position behind its pages.", "I7")
_shifted("aborts", "finish", "slot_cache_protected_len", 1, "The slot claims a token of its own as the tree's.", "I12")
_shifted("aborts", "finish", "checkpoint_len", -1, "The session forgets its last token.", "I14")
_shifted("window", "window", "swa_evicted_seqlen", 1, "The cursor stands inside a page.", "I9")
_shifted("window", "finish", "slot_swa_evicted_seqlen", 1, "The slot's cursor ran ahead (sglang #22900).", "I9")
_shifted("sessions", "match", "fill_len", -1, "The match did not count the last output token.", "I14", True)
_shifted(
    "sessions", "create", "origin_len", 1, "The turn arrived with a token more than it was matched with.", "I14", True
)
_shifted("chunks", "extend", "seq_len", -1, "The chunk ran a token less than it allocated for.", "I3", True)
_shifted("aborts", "finish", "finished_len", -1, "The answer was cut by a token and the slot was not.", "I14", True)
_shifted("rounds in flight", "result", "tokens", 1, "A round brought a token that it did not count.", "I17", True)
_shifted("rounds", "verify", "tokens", -1, "A round of speculation v1 lost an accepted token.", "I3", True)
_shifted("duplicates", "insert", "dup_len", 1, "Duplicates end inside a page.", "I16", True)
_shifted("window", "window", "pre_len", 1, "The window was counted from a token that has no KV.", "I9", True)


@OFF_BY_ONE.wrong("sessions", must="I14: no more is kept than was generated")
def an_answer_longer_than_its_output(t: Trace) -> None:
    """An ordinary request ends with more output tokens than its results brought: the user reads tokens of nobody."""
    t.last("finish", where=of_no_session)["params"]["finished_len"] += 5


@OFF_BY_ONE.wrong("duplicates", must="I16")
def a_page_less_was_duplicate(t: Trace) -> None:
    """The tree had a page more than the event says, and the free is right: two counts of one thing disagree."""
    event = t.first("insert", where=has("free"))
    event["params"]["dup_len"] -= t.config["page_size"]


@OFF_BY_ONE.wrong("aborts", must="I16")
def flag_of_a_slot(t: Trace) -> None:
    """An abort left the slot held: the session continues with pages that were freed."""
    t.last("abort", where=lambda e: e["after"].get("slot_held") is False)["after"]["slot_held"] = True


@OFF_BY_ONE.wrong("busy", must="I15")
def flag_of_an_admission(t: Trace) -> None:
    """A busy session admitted a second turn (sglang #22790)."""
    event = t.first("create", where=lambda e: e["params"]["admitted"] is False)
    event["params"]["admitted"] = event["after"]["attached"] = True


@OFF_BY_ONE.wrong("chunks", must="guard of extend")
def flag_of_a_last_chunk(t: Trace) -> None:
    """A chunk in the middle of the input calls itself the last one."""
    t.first("extend", where=lambda e: e["params"]["last"] is False)["params"]["last"] = True


@OFF_BY_ONE.wrong("sessions", must="I16, I1")
def flag_of_an_insert(t: Trace) -> None:
    """A request that gave its pages to the tree says that it gave none: tree and free list both have them."""
    event = t.last("finish", where=lambda e: e["params"].get("inserted") is True)
    event["params"]["inserted"] = False


@OFF_BY_ONE.wrong("aborts", must="I1")
def flag_of_an_aborted_insert(t: Trace) -> None:
    """An aborted session turn gave its pages to the tree and to the free list."""
    event = t.first("abort", where=lambda e: bool(e.get("free")))
    event["params"] = {**event.get("params", {}), "inserted": True}


@OFF_BY_ONE.wrong("closes", must="I15")
def flag_of_a_waiting_close(t: Trace) -> None:
    """A waiting close is gone after the next event: it will never be carried out."""
    t.first("decode", where=lambda e: e["after"].get("closing") is True)["after"]["closing"] = False


@OFF_BY_ONE.wrong("sessions", must="I5")
def flag_of_a_loan(t: Trace) -> None:
    """A later turn took a row of its own beside its session's."""
    t.first("match", where=lambda e: e["after"].get("lent") is True)["after"]["lent"] = False


@OFF_BY_ONE.wrong("pressure", must="only events of a session or a turn show a ledger")
def a_length_after_an_eviction(t: Trace) -> None:
    """The lengths of some turn stand at an eviction, where nothing compares them: whatever it says would be right."""
    t.first("evict")["after"] = {"kv_committed_len": 10**6}


@OFF_BY_ONE.wrong("checked", must="only events of a session or a turn show a ledger")
def a_marker_after_a_check(t: Trace) -> None:
    """The memory check says that a session is busy, and whose it is nobody knows."""
    t.first("check")["after"] = {"inflight": True}


@OFF_BY_ONE.wrong("sessions", must="only a result has tokens")
def tokens_of_a_decode(t: Trace) -> None:
    """A step that was launched says that it gave a token: the result gives it again."""
    t.first("decode")["params"] = {"tokens": 1}


@OFF_BY_ONE.wrong("retracts", must="only an end says what was inserted")
def insert_of_a_retract(t: Trace) -> None:
    """A retracted turn says that the tree took its pages, which it frees."""
    t.first("retract")["params"] = {"inserted": True, "dup_len": 4}


@OFF_BY_ONE.wrong("pressure", must="an eviction is of the tree")
def turn_of_an_eviction(t: Trace) -> None:
    """A turn evicts, while the tree is nobody's."""
    t.first("evict")["turn"] = "plain/1"
