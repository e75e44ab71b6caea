"""Changes that tell the same: other names, another order of what is independent, more or less of what is optional."""

from __future__ import annotations

import random
from itertools import pairwise

from kvproof.spec.batch import LAUNCHES
from kvproof.spec.gaps import BUSY_CHECK
from referee.cases import Edits
from referee.traces.trace import Trace, has, of_session

HARMLESS = Edits("the same run, told otherwise")
SEED = 7


def _named_anew(t: Trace, key: str) -> None:
    names = sorted({event[key] for event in t.all() if key in event})
    new = {name: f"{key} {number}" for number, name in enumerate(reversed(names))}
    for event in t.events:
        if key in event:
            event[key] = new[event[key]]


def _shuffled(count: int) -> dict[int, int]:
    pages = list(range(1, count + 1))
    random.Random(SEED).shuffle(pages)
    return dict(enumerate(pages, 1))


@HARMLESS.right("sessions")
def sessions_renamed(t: Trace) -> None:
    """Every session has another name."""
    _named_anew(t, "session")


@HARMLESS.right("retracts")
def turns_renamed(t: Trace) -> None:
    """Every turn has another name."""
    _named_anew(t, "turn")


@HARMLESS.right("checked")
def pages_permuted(t: Trace) -> None:
    """Every page has another number, everywhere."""
    t.rename_pages(_shuffled(t.config["pool_pages"]))


@HARMLESS.right("pressure")
def pages_permuted_under_pressure(t: Trace) -> None:
    """Every page has another number, with evictions."""
    t.rename_pages(_shuffled(t.config["pool_pages"]))


@HARMLESS.right("window")
def window_pages_permuted(t: Trace) -> None:
    """Every page of the window pool has another number."""
    t.rename_window_pages(_shuffled(t.config["window_pages"]))


@HARMLESS.right("sglang 0.5.11 window")
def real_pages_permuted(t: Trace) -> None:
    """A real server's pages, both pools, with other numbers."""
    t.rename_pages(_shuffled(t.config["pool_pages"]))
    t.rename_window_pages(_shuffled(t.config["window_pages"]))


@HARMLESS.right("sessions")
def rows_permuted(t: Trace) -> None:
    """Every row has another number within the header's rows."""
    rows = _shuffled(t.config["rows"])
    for event in t.all(where=has("row")):
        event["row"] = rows[event["row"]]


@HARMLESS.right("sessions")
def independent_results_swapped(t: Trace) -> None:
    """Two results of different requests in one step change places."""
    for one, other in pairwise(t.events):
        if one["action"] == other["action"] == "result" and one["turn"] != other["turn"]:
            t.swap(one, other)
            return


@HARMLESS.right("sessions")
def independent_decodes_swapped(t: Trace) -> None:
    """Two decode steps of different requests change places: neither takes a page."""
    for one, other in pairwise(t.events):
        if one["action"] == other["action"] == "decode" and not one.get("alloc") and not other.get("alloc"):
            t.swap(one, other)
            return


@HARMLESS.right("sessions")
def sessions_opened_in_another_order(t: Trace) -> None:
    """Two sessions are opened in the opposite order."""
    one, other = t.all("open")[:2]
    t.swap(one, other)


@HARMLESS.right("closes")
def clock_is_later(t: Trace) -> None:
    """Every scheduler step has a number that is 1000 larger."""
    for event in t.events:
        event["step"] += 1000


@HARMLESS.right("storm")
def clock_is_told_by_launches_alone(t: Trace) -> None:
    """No event tells its scheduler step but those that launch one."""
    for event in t.events:
        if event["action"] not in LAUNCHES:
            event.pop("step")


@HARMLESS.right("sessions")
def gap_is_named(t: Trace) -> None:
    """The recorder names something that it could not see."""
    t.header["gaps"] = [BUSY_CHECK]


@HARMLESS.right("sessions")
def producer_says_more(t: Trace) -> None:
    """Scenario, version and free settings of the producer differ."""
    t.header["scenario"] = "another name"
    t.header["producer"]["version"] = "0.1.1"
    t.header["extra"] = {"host": "node 7"}


@HARMLESS.right("checked")
def one_check_left_out(t: Trace) -> None:
    """The server was checked once less."""
    t.remove(t.all("check")[3])


@HARMLESS.right("checked")
def free_lists_in_another_order(t: Trace) -> None:
    """Every free list is in the opposite order."""
    for event in t.all("check", where=has("free_list")):
        event["free_list"].reverse()


@HARMLESS.right("checked")
def free_lists_left_out(t: Trace) -> None:
    """The free lists were too long to list; the terms are there."""
    for event in t.all("check", where=has("free_list")):
        event.pop("free_list")


@HARMLESS.right("sessions")
def frees_in_another_order(t: Trace) -> None:
    """Every event lists its freed pages in the opposite order."""
    for event in t.all(where=has("free")):
        event["free"].reverse()


@HARMLESS.right("checked")
def larger_pool(t: Trace) -> None:
    """The same run on a pool with four pages more, which nobody takes: the header and every check count them."""
    old = t.config["pool_pages"]
    t.config["pool_pages"] = old + 4
    for event in t.all("check"):
        event["free_list"] += range(old + 1, old + 5)
        event["terms"]["available"] += 4
        event["terms"]["total"] += 4


@HARMLESS.right("sessions")
def more_rows(t: Trace) -> None:
    """The same run on a server with more rows, which nobody takes."""
    t.config["rows"] *= 2


@HARMLESS.right("chunks")
def match_repeated(t: Trace) -> None:
    """A waiting request is matched and rejected once more: nothing was taken yet."""
    t.repeat(t.first("match", where=lambda e: not e.get("free")))


@HARMLESS.right("chunks in flight")
def optional_results_left_out(t: Trace) -> None:
    """Results of chunks in the middle of an input are not recorded: they are optional."""
    t.remove(*t.all("result", where=lambda e: e["params"]["tokens"] == 0 and e["after"].get("output_len") == 0))


@HARMLESS.right("sessions")
def more_fields_observed(t: Trace) -> None:
    """Decode steps of sessions also tell that their turn belongs to the session."""
    for event in t.all("decode", "result", where=of_session):
        event["after"]["attached"] = True


@HARMLESS.right("retracts")
def defaults_written_out(t: Trace) -> None:
    """Every event writes out its empty lists and null fields, with its keys in another order."""
    for number, event in enumerate(t.events):
        full = {"free": [], "alloc": [], "window_free": [], "window_alloc": [], "cause": None, "terms": None, **event}
        t.events[number] = dict(sorted(full.items()))


@HARMLESS.right("sessions")
def one_more_session(t: Trace) -> None:
    """One more session is opened and closed at the end."""
    idle = {"inflight": False, "closing": False, "slot_held": False, "checkpoint_len": 0}
    one = {"session": "one more"}
    t.append({"action": "open", **one, "after": idle})
    t.append({"action": "close", **one, "after": idle})


@HARMLESS.right("sessions")
def one_more_request_that_was_aborted(t: Trace) -> None:
    """One more request arrives and is aborted in the queue."""
    t.append({"action": "arrive", "turn": "one more", "params": {"origin_len": 5}})
    t.append({"action": "abort", "turn": "one more"})


@HARMLESS.right("sglang 0.5.11")
def real_deviations_not_declared(t: Trace) -> None:
    """A real server's trace without its known deviations, none of which happens in it."""
    t.header["known_deviations"] = []


@HARMLESS.right("sglang 0.5.23")
def real_turns_renamed(t: Trace) -> None:
    """A real server's trace with other names, by the rules of its release."""
    _named_anew(t, "turn")
    _named_anew(t, "session")
