"""What an event says of the tree, and its pages do not: keys, copies and numbers of prefixes."""

from __future__ import annotations

from referee.cases import Edits
from referee.traces.bases import PAGE_SIZE
from referee.traces.trace import Event, Trace, has, of_no_session, of_session

TREE = Edits("what an event says of the tree")


def _says(name: str, event: Event) -> bool:
    return bool(event.get("params", {}).get(name))


def _of_turn(t: Trace, event: Event, *actions: str) -> list[Event]:
    """Events of the same turn before this one."""
    return [e for e in t.events[: t.place(event)] if e["action"] in actions and e.get("turn") == event["turn"]]


@TREE.wrong("storm", must="I12: all pages of the prompt are the tree's")
def insert_that_shows_fewer_pages(t: Trace) -> None:
    """An insert shows a page less than its key has: the last one stays the row's own, and is freed with it."""
    t.first("insert", where=lambda e: len(e["shared"]) > 1)["shared"].pop()


@TREE.wrong("sglang 0.5.23", must="I12: all pages of the prompt are the tree's")
def real_insert_that_shows_fewer_pages(t: Trace) -> None:
    """A real server's insert shows a page less than its key has."""
    t.first("insert", where=lambda e: len(e["shared"]) > 1)["shared"].pop()


@TREE.wrong("storm", must="I16: a copy is of a page of the tree")
def copies_that_nobody_inserted(t: Trace) -> None:
    """A request gives its own pages back as copies of pages that the tree never had: the next user finds nothing there."""
    for event in t.all("finish", where=of_no_session):
        handed = _of_turn(t, event, "insert")[-1]["after"]["cache_protected_len"] if _of_turn(t, event, "insert") else 0
        decoded = _of_turn(t, event, "decode")
        whole = decoded[-1]["after"]["kv_committed_len"] // PAGE_SIZE * PAGE_SIZE if decoded else 0
        if 0 < handed < whole:
            taken = [page for e in _of_turn(t, event, "extend", "decode") for page in e.get("alloc", ())]
            event["params"]["dup_len"] = whole
            event["params"].pop("prefix_id")
            event["free"] = taken[handed // PAGE_SIZE :]
            return
    raise LookupError("no request ends with pages that the tree does not have")


@TREE.wrong("storm", must="I12: a prefix is one path of the tree")
def one_number_for_two_prefixes(t: Trace) -> None:
    """Two prompts have one number while the tree holds both: the rows of one user's prompt hold another's KV."""
    told = [e["params"] for e in t.all("insert", where=lambda e: _says("prefix_id", e))]
    next(p for p in told if p["prefix_id"] != told[0]["prefix_id"])["prefix_id"] = told[0]["prefix_id"]


@TREE.wrong("duplicates", must="I12: a number is of one length")
def number_of_a_shorter_prefix(t: Trace) -> None:
    """The end of a request gives its pages back as copies of a prefix that is shorter: the next user finds nothing there."""
    finish = t.all("finish", where=lambda e: _says("dup_len", e))[1]
    finish["params"]["prefix_id"] = t.first("insert", where=lambda e: _says("prefix_id", e))["params"]["prefix_id"]


@TREE.wrong("duplicates", must="I12: what is numbered is a prefix")
def prefix_of_a_prefill_that_shares_nothing(t: Trace) -> None:
    """A prefill numbers a prefix and takes none over: the number is compared with nothing."""
    t.first("extend", where=lambda e: not e.get("shared"))["params"]["prefix_id"] = 1


@TREE.wrong("sessions", must="I12: what is numbered is a prefix")
def prefix_of_a_session_that_ends(t: Trace) -> None:
    """The end of a session's turn numbers a prefix: the tree takes nothing there."""
    t.first("finish", where=of_session)["params"]["prefix_id"] = 1


@TREE.wrong("sessions", must="I12: the tree takes nothing")
def key_of_a_session_that_ends(t: Trace) -> None:
    """The end of a session's turn says that the tree took tokens of it: the slot would hold what the tree owns."""
    t.first("finish", where=of_session)["params"]["key_len"] = PAGE_SIZE


@TREE.wrong("sessions", must="I16: the tree takes nothing")
def copies_of_a_session_that_ends(t: Trace) -> None:
    """The end of a session's turn says that the tree had copies of it: nothing of it is freed."""
    t.first("finish", where=of_session)["params"]["dup_len"] = PAGE_SIZE


@TREE.wrong("sessions", must="I12: the tree takes all")
def key_of_a_request_that_is_cut(t: Trace) -> None:
    """The end of a request says that the tree took one page of it, and its pages say that it took all."""
    t.last("finish", where=of_no_session)["params"]["key_len"] = PAGE_SIZE


@TREE.wrong("storm", must="incomplete: a prefix was not numbered")
def prefix_of_a_match_left_out(t: Trace) -> None:
    """A prefill that takes over a prefix does not number it: whose tokens it reuses is not told."""
    del t.first("extend", where=has("shared"))["params"]["prefix_id"]


@TREE.wrong("storm", must="incomplete: prefixes were not numbered")
def prefixes_left_out(t: Trace) -> None:
    """No event numbers a prefix: a match of another user's prompt would look the same."""
    for event in t.all("extend", "insert", "finish"):
        event["params"].pop("prefix_id", None)


@TREE.wrong("retracts", must="a slot that is not held has no lengths")
def lengths_of_no_slot(t: Trace) -> None:
    """A slot that is not held shows a length: what it says is compared with nothing."""
    event = t.all(where=lambda e: e.get("after", {}).get("slot_held") is False)[0]
    event["after"]["slot_kv_committed_len"] = PAGE_SIZE


@TREE.wrong("sglang 0.5.23", must="the server's own check agrees with its terms")
def real_check_that_failed(t: Trace) -> None:
    """A real server's own check failed, and the terms that it read add up: one of the two was not what happened."""
    t.last("check", where=has("terms"))["params"]["own_check_ok"] = False


@TREE.wrong("checked", must="incomplete: busy was not told")
def busy_left_out(t: Trace) -> None:
    """No check says whether a batch runs: which of its two formulas the server used is not known."""
    for event in t.all("check"):
        event["params"].pop("busy", None)
