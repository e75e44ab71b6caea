"""Headers and rows that lie."""

from __future__ import annotations

from kvproof.spec import gaps
from referee.cases import Edits
from referee.traces.trace import Trace, has

HEADER = Edits("a header that lies")
ROWS = Edits("row numbers")


@HEADER.wrong("sessions", must="I5: no more rows than the header has")
def fewer_rows_than_are_used(t: Trace) -> None:
    """The header says one row and six are in use at once: the row pool handed out what it does not have."""
    t.config["rows"] = 1


@HEADER.wrong("sessions", must="I3")
def narrower_rows_than_are_used(t: Trace) -> None:
    """The header's rows are shorter than what is written into them: tokens run into the next row."""
    t.config["row_width"] = 12


@HEADER.wrong("checked", must="I2")
def larger_pool_than_there_is(t: Trace) -> None:
    """The header's pool has ten pages more than the server's: leaks of ten pages would look right."""
    t.config["pool_pages"] += 10


@HEADER.wrong("checked", must="I2, I1")
def smaller_pool_than_there_is(t: Trace) -> None:
    """The header's pool is smaller than what the memory check adds up to."""
    t.config["pool_pages"] -= 10


@HEADER.wrong("window", must="refused: window pages without a window pool")
def window_pool_is_denied(t: Trace) -> None:
    """The header names no window pool: events list its pages, and nothing follows them any more."""
    t.config["window_pages"] = 0


def _forget_the_window_pool(t: Trace) -> None:
    t.config["window_pages"] = 0
    for event in t.events:
        for name in ("window_alloc", "window_free", "window_free_list", "window_terms"):
            event.pop(name, None)


@HEADER.wrong("window", must="incomplete: a window, and no window pool")
def window_pool_is_not_told(t: Trace) -> None:
    """No event lists a window page, and the header does not say so: what happens to them is not checked."""
    _forget_the_window_pool(t)


@HEADER.wrong("window", must="incomplete: a window, and no window pool")
def evictions_of_the_window_are_not_told(t: Trace) -> None:
    """The same, and no eviction is shown either: the trace looks like one of full attention."""
    _forget_the_window_pool(t)
    t.remove(*t.all("window"))


@HEADER.wrong("window", must="incomplete: a gap that events contradict")
def window_pool_is_told_and_denied(t: Trace) -> None:
    """The header says that no page of the window pool is seen. Events list them: a reader believes the wrong one of both."""
    t.header["gaps"] = [gaps.WINDOW_PAGES]


@HEADER.wrong("sessions", must="incomplete: a gap that events contradict")
def gap_that_is_none(t: Trace) -> None:
    """A wrong marker was deleted. The header says that the marker cannot be seen, and other events show it."""
    t.header["gaps"] = [gaps.INFLIGHT]
    t.first("finish")["after"].pop("inflight")


@HEADER.wrong("checked", must="incomplete: a gap that events contradict")
def terms_that_are_not_seen(t: Trace) -> None:
    """The terms of one check were deleted. The header says that they cannot be seen, and other checks show them."""
    t.header["gaps"] = [gaps.CHECK_TERMS]
    t.first("check", where=has("terms")).pop("terms")


@HEADER.wrong("window", must="I1, I2")
def smaller_window_pool_than_is_used(t: Trace) -> None:
    """The header's window pool is smaller than the pages that are taken from it."""
    t.config["window_pages"] = 3


@HEADER.wrong("window", must="I9")
def larger_window_than_is_kept(t: Trace) -> None:
    """The header's window is longer than what the server keeps: its layers read freed pages."""
    t.config["window"] = 16


@HEADER.wrong("window", must="no rule applies")
def window_is_denied(t: Trace) -> None:
    """The header says full attention, and the server frees what left a window."""
    t.config["window"] = t.config["window_pages"] = 0


@HEADER.wrong("sessions", must="I1, I3")
def larger_pages_than_there_are(t: Trace) -> None:
    """The header's pages hold twice the tokens."""
    t.config["page_size"] = 8


@HEADER.wrong("sessions", must="I1, I3")
def smaller_pages_than_there_are(t: Trace) -> None:
    """The header's pages hold half the tokens."""
    t.config["page_size"] = 2


@HEADER.wrong("ends in flight", must="no rule applies")
def overlap_is_denied(t: Trace) -> None:
    """The header says that no step is prepared before the last result, and steps are."""
    t.config["overlap"] = False


@HEADER.wrong("retracts", must="incomplete: no step was ever prepared early")
def overlap_is_invented(t: Trace) -> None:
    """The header says overlap and no step overlaps: the looser rules for results hide a step that never ran."""
    t.config["overlap"] = True


@HEADER.wrong("rounds in flight", must="I22")
def speculation_is_denied(t: Trace) -> None:
    """The header says no speculation, and results bring more than one token."""
    t.config["speculation"] = 0


@HEADER.wrong("rounds in flight", must="I22")
def fewer_drafts_than_are_accepted(t: Trace) -> None:
    """The header's rounds draft one token, and more are accepted."""
    t.config["drafts"] = 1


@HEADER.wrong("sessions", must="I12")
def tree_is_denied(t: Trace) -> None:
    """The header says chunk cache, which shares nothing, and pages are shared."""
    t.config["tree"] = False


@HEADER.wrong("chunks", must="I18: no chunk is longer than the header says")
def smaller_chunks_than_there_are(t: Trace) -> None:
    """The header's chunks are half as long as those that ran: a step took more than its budget."""
    t.config["chunked_prefill_size"] //= 2


@HEADER.wrong("sessions", must="refused: unknown deviation")
def deviation_of_no_catalogue(t: Trace) -> None:
    """The header excuses itself by a deviation that does not exist."""
    t.header["known_deviations"] = ["F99999"]


NOT_KNOWN = "the target is not known to have it"


@HEADER.wrong("checks with F22213", must=NOT_KNOWN)
def wrong_terms_are_declared(t: Trace) -> None:
    """A server counts pages wrongly (sglang #22213) and declares that as known, although it is not known of this target."""
    t.header["known_deviations"] = ["F22213"]


@HEADER.wrong("rounds with F21875c", must=NOT_KNOWN)
def lost_reserves_are_declared(t: Trace) -> None:
    """A server loses the reserves of its drafts (sglang #21875) and its trace declares that as known."""
    t.header["known_deviations"] = ["F21875c"]


@HEADER.wrong("duplicates with F994a", must=NOT_KNOWN)
def lost_duplicates_are_declared(t: Trace) -> None:
    """A server frees duplicates of others (sglang-jax #994) and its trace declares that as known."""
    t.header["known_deviations"] = ["F994a"]


@HEADER.wrong("aborts with F22790d", must=NOT_KNOWN)
def wrong_checkpoints_are_declared(t: Trace) -> None:
    """A server's aborts advance the checkpoint (sglang #22790) and its trace declares every deviation that there is."""
    t.header["known_deviations"] = ["F20070", "F22213", "F22790a", "F22790d", "F994a"]


@HEADER.wrong("sessions", must="refused: another format")
def format_of_tomorrow(t: Trace) -> None:
    """The file says that it has another format: fields may mean something else."""
    t.header["format"] = 2


@HEADER.wrong("sessions", must="refused: another specification")
def specification_of_tomorrow(t: Trace) -> None:
    """The recorder was written for other rules."""
    t.header["spec"] = "99"


@HEADER.wrong("sessions", must="refused: unknown field")
def field_that_does_not_exist(t: Trace) -> None:
    """An event has a field that no reader knows: what it means is lost."""
    t.first("decode")["kv_commited_len"] = 3


@HEADER.wrong("sessions", must="refused: unknown field")
def misspelt_parameter(t: Trace) -> None:
    """A parameter has a name that no rule takes: what the recorder saw there is never compared."""
    t.first("match")["params"] = {"fil_len": 999}


def _row_becomes(t: Trace, old: int, new: int) -> None:
    for event in t.all():
        if event.get("row") == old:
            event["row"] = new


@ROWS.wrong("sessions", must="I5: a row of the header")
def row_beyond_the_header(t: Trace) -> None:
    """A request uses row 9999 of eight: it writes behind the page table."""
    _row_becomes(t, t.first("extend")["row"], 9999)


@ROWS.wrong("sessions", must="I5: a row of the header")
def row_below_zero(t: Trace) -> None:
    """A request uses row -1: the last row of the page table, which is another's."""
    _row_becomes(t, t.first("extend")["row"], -1)


@ROWS.wrong("sessions", must="I5")
def row_of_another(t: Trace) -> None:
    """A request takes the row that a running one has."""
    one, other = t.all("extend")[:2]
    _row_becomes(t, other["row"], one["row"])


@ROWS.wrong("sessions", must="I5")
def row_changes_in_the_middle(t: Trace) -> None:
    """A turn decodes on another row than it was prefilled on."""
    event = t.last("decode")
    event["row"] = event["row"] + 1


@ROWS.wrong("sessions", must="I5")
def row_is_not_told(t: Trace) -> None:
    """A prefill names no row."""
    t.last("extend").pop("row")


@ROWS.wrong("sessions", must="I5")
def match_restores_another_row(t: Trace) -> None:
    """A later turn restores the row of another session."""
    event = t.first("match", where=has("row"))
    event["row"] += 1


@ROWS.wrong("sessions", must="I5")
def close_returns_another_row(t: Trace) -> None:
    """A close returns the row of another session: two requests get it."""
    t.first("close", where=has("row"))["row"] += 1


@ROWS.wrong("rounds", must="I5")
def verify_on_another_row(t: Trace) -> None:
    """A round of speculation v1 is verified on the row of another request."""
    t.first("verify", where=has("row"))["row"] += 1


@ROWS.wrong("window", must="I5")
def window_of_another_row(t: Trace) -> None:
    """A window is evicted on the row of another request."""
    t.first("window", where=has("row"))["row"] += 1


@ROWS.wrong("storm", must="I5: as many rows as the header says")
def more_rows_than_there_are(t: Trace) -> None:
    """The header says one row less than are used at once: the last one is another's page table."""
    most = max(e["row"] for e in t.all(where=has("row")))
    for event in t.events:
        if event.get("row") == most:
            event["row"] = 0
    t.config["rows"] = most - 1
