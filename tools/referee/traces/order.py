"""Events that are left out, repeated, swapped, or told of another turn; results too many and too few; a trace that was cut."""

from __future__ import annotations

from referee.cases import Edits
from referee.traces.trace import Trace, has, of_session

EVENTS = Edits("events left out, repeated, swapped, moved")
RESULTS = Edits("results too many, too few, too late")
END = Edits("the end of a trace is forged")


@EVENTS.wrong("sessions", must="I3, I22")
def decode_left_out(t: Trace) -> None:
    """A decode step was not recorded: its position was claimed unseen."""
    t.remove(t.all("decode")[5])


@EVENTS.wrong("sessions", must="no rule applies")
def extend_left_out(t: Trace) -> None:
    """A prefill was not recorded: pages and a row were taken unseen."""
    t.remove(t.last("extend"))


@EVENTS.wrong("sessions", must="no rule applies")
def match_left_out(t: Trace) -> None:
    """A request was prefilled without a match: it reuses nothing, or what it may not."""
    t.remove(t.last("match", where=of_session))


@EVENTS.wrong("sessions", must="I12")
def insert_left_out(t: Trace) -> None:
    """An insert was not recorded: pages changed their owner unseen."""
    t.remove(t.first("insert"))


@EVENTS.wrong("sessions", must="I15")
def finish_left_out(t: Trace) -> None:
    """The end of a turn was not recorded: the session takes a second turn while one runs."""
    t.remove(t.first("finish", where=of_session))


@EVENTS.wrong("retracts", must="no rule applies")
def retract_left_out(t: Trace) -> None:
    """A retract was not recorded: a running turn is matched again."""
    t.remove(t.first("retract"))


@EVENTS.wrong("sessions", must="no rule applies")
def create_left_out(t: Trace) -> None:
    """A turn runs that never arrived."""
    t.remove(t.last("create"))


@EVENTS.wrong("sessions", must="no rule applies")
def open_left_out(t: Trace) -> None:
    """A session takes turns that was never opened."""
    t.remove(t.first("open"))


@EVENTS.wrong("chunks", must="no rule applies")
def stash_left_out(t: Trace) -> None:
    """A chunk was not kept and the next one follows: it overwrites the first."""
    t.remove(t.first("stash"))


@EVENTS.wrong("closes", must="no rule applies")
def second_half_of_a_close_left_out(t: Trace) -> None:
    """A deferred close was never carried out, and the recorder says that the run is over: the session's pages leak."""
    closes = t.all("close", where=lambda e: e["after"].get("closing") is True)
    session = closes[0]["session"]
    t.remove(t.last("close", where=lambda e: e["session"] == session))
    t.remove(*(e for e in t.events if e["action"] == "check"))


@EVENTS.wrong("window", must="I9, I10")
def window_left_out(t: Trace) -> None:
    """An eviction of the window was not recorded."""
    t.remove(t.first("window"))


@EVENTS.wrong("sessions", must="I3")
def decode_repeated(t: Trace) -> None:
    """A decode step was launched twice before its result."""
    t.repeat(t.first("decode"))


@EVENTS.wrong("sessions", must="no rule applies")
def finish_repeated(t: Trace) -> None:
    """A turn ends twice (sglang #22790): what it had is returned twice."""
    t.repeat(t.first("finish"))


@EVENTS.wrong("sessions", must="I12")
def insert_repeated(t: Trace) -> None:
    """A session's prompt is inserted twice."""
    t.repeat(t.last("insert", where=has("free")))


@EVENTS.wrong("sessions", must="no rule applies")
def close_repeated(t: Trace) -> None:
    """A session is closed twice: its row and pages go back twice."""
    t.repeat(t.last("close"))


@EVENTS.wrong("sessions", must="no rule applies")
def open_repeated(t: Trace) -> None:
    """A session is opened twice: the second one replaces a session that holds pages."""
    t.repeat(t.first("open"))


@EVENTS.wrong("sessions", must="no rule applies")
def extend_repeated(t: Trace) -> None:
    """A prompt is prefilled twice: it takes its pages twice."""
    t.repeat(t.last("extend"))


@EVENTS.wrong("sessions", must="no rule applies")
def extend_before_its_match(t: Trace) -> None:
    """A request is prefilled before it was matched."""
    match = t.last("match")
    t.swap(match, t.next_of_turn(match, "extend"))


@EVENTS.wrong("sessions", must="I22, I3")
def result_before_its_launch(t: Trace) -> None:
    """A result is processed before its step was launched."""
    decode = t.last("decode")
    t.swap(decode, t.next_of_turn(decode, "result"))


@EVENTS.wrong("sessions", must="I12, I14")
def finish_before_its_result(t: Trace) -> None:
    """A turn ends before its last result is known, without overlap."""
    finish = t.last("finish", where=of_session)
    result = [e for e in t.events[: t.place(finish)] if e.get("turn") == finish["turn"] and e["action"] == "result"][-1]
    t.swap(result, finish)


@EVENTS.wrong("sessions", must="no rule applies, or I15")
def create_before_the_last_finish(t: Trace) -> None:
    """A turn is admitted before the one before it ended (sglang #22790)."""
    finish = t.first("finish", where=of_session)
    create = t.next_of(finish, "create", where=lambda e: e["session"] == finish["session"])
    t.remove(create)
    t.events.insert(t.place(finish), create)


@EVENTS.wrong("sessions", must="turn of the session")
def result_of_another_turn(t: Trace) -> None:
    """A result is written for a turn of another session: one user's token is appended to another's answer."""
    results = t.all("result", where=of_session)
    other = next(e for e in results if e["session"] != results[0]["session"])
    results[0]["turn"] = other["turn"]


@EVENTS.wrong("sessions", must="turn of the session")
def step_of_a_request_of_no_session(t: Trace) -> None:
    """A session's step is written for a request of no session: its row and its tokens are two users'."""
    arrives = t.first("arrive")
    t.next_of(arrives, "decode", where=of_session)["turn"] = arrives["turn"]


@EVENTS.wrong("sessions", must="turn of the session")
def decode_of_a_turn_that_never_came(t: Trace) -> None:
    """A step runs for a turn that nobody created: the session has two turns on one row."""
    t.first("decode", where=of_session)["turn"] = "ghost"


@EVENTS.wrong("sessions", must="turn of the session")
def finish_of_another_turn(t: Trace) -> None:
    """The turn that ends is not the one that runs: the client of the running one waits for ever."""
    finish = t.last("finish", where=of_session)
    finish["turn"] = t.first("finish", where=lambda e: e.get("session") == finish["session"])["turn"]


@EVENTS.wrong("sessions", must="turn of the session")
def event_without_its_turn(t: Trace) -> None:
    """A decode step names no turn: nobody can say for whom it ran."""
    t.first("decode", where=of_session).pop("turn")


@EVENTS.wrong("sessions", must="a turn's name is used once at a time")
def two_turns_of_one_name(t: Trace) -> None:
    """Turns of two sessions have one name while both run: a result of one is taken for the other's."""
    creates = t.all("create")
    names = creates[0]["turn"], next(e for e in creates if e["session"] != creates[0]["session"])["turn"]
    for event in t.events:
        if event.get("turn") == names[1]:
            event["turn"] = names[0]


@EVENTS.wrong("sessions", must="a turn's name is used once at a time")
def turn_of_a_session_arrives(t: Trace) -> None:
    """A turn that its session admitted arrives as an ordinary request, too: one of the two is never answered."""
    admitted = t.first("create", where=lambda e: e["params"]["admitted"])
    arrives = {"action": "arrive", "turn": admitted["turn"], "params": {"origin_len": admitted["params"]["origin_len"]}}
    t.insert_after(admitted, arrives)


@EVENTS.wrong("sessions", must="no rule applies")
def decode_of_another_session(t: Trace) -> None:
    """A decode step is written for a session that is idle."""
    closes = t.all("close")
    last = t.last("decode", where=of_session)
    last["session"] = next(e["session"] for e in closes if e["session"] != last["session"])


@EVENTS.wrong("sessions", must="no rule applies")
def decode_behind_the_end(t: Trace) -> None:
    """A turn continues after it ended."""
    finish = t.last("finish", where=of_session)
    before = [e for e in t.events[: t.place(finish)] if e.get("turn") == finish["turn"] and e["action"] == "decode"]
    t.insert_after(finish, {k: v for k, v in before[-1].items() if k not in ("seq", "record")})


@EVENTS.wrong("aborts", must="no rule applies")
def abort_of_an_ended_turn(t: Trace) -> None:
    """A turn is aborted after it ended (sglang #22790): it releases its pages again."""
    finish = t.last("finish")
    t.insert_after(finish, {"action": "abort", "session": finish["session"], "turn": finish["turn"], "after": {}})


@EVENTS.wrong("sessions", must="no rule applies")
def request_arrives_twice(t: Trace) -> None:
    """A running request arrives a second time under its name: its row and pages are forgotten."""
    arrive = t.first("arrive")
    again = t.next_of_turn(arrive, "decode")
    t.insert_after(again, {key: arrive[key] for key in ("action", "turn", "params")})


@EVENTS.wrong("retracts", must="no rule applies")
def retract_repeated(t: Trace) -> None:
    """A turn that waits is retracted once more."""
    t.repeat(t.first("retract"))


@EVENTS.wrong("sessions", must="no rule applies")
def session_of_another_name(t: Trace) -> None:
    """The end of a turn is written for a session that does not exist: its own waits for ever."""
    t.last("finish", where=of_session)["session"] = "nobody"


@EVENTS.wrong("too long", must="I15")
def too_long_turn_runs(t: Trace) -> None:
    """A turn that was refused for its length finishes with success."""
    event = t.first("create", where=lambda e: e["params"].get("too_long") is True)
    event["params"]["too_long"] = False


@EVENTS.wrong("queued aborts", must="I15")
def abort_left_out(t: Trace) -> None:
    """The abort of a queued turn was not recorded: the session's next turn is admitted beside it."""
    t.remove(t.first("abort", where=of_session))


@EVENTS.wrong("closes", must="no rule applies")
def turn_in_a_closed_session(t: Trace) -> None:
    """A turn arrives in a session that was closed."""
    close = t.last("close")
    turn = {"action": "create", "session": close["session"], "turn": "late", "after": {"inflight": True}}
    params = {"admitted": True, "logprob": False, "origin_len": 3, "too_long": False}
    t.insert_after(close, {**turn, "params": params})


@EVENTS.wrong("closes", must="I15")
def turn_in_a_closing_session(t: Trace) -> None:
    """A session whose close waits admits one more turn as soon as the running one has ended."""
    finish = t.first("finish", where=lambda e: e.get("after", {}).get("closing") is True)
    turn = {"action": "create", "session": finish["session"], "turn": "late"}
    params = {
        "admitted": True,
        "logprob": False,
        "origin_len": finish["after"]["checkpoint_len"] + 1,
        "too_long": False,
    }
    t.insert_after(finish, {**turn, "params": params, "after": {"inflight": True, "attached": True}})


@RESULTS.wrong("sessions", must="I22")
def result_left_out(t: Trace) -> None:
    """A result was never processed: its token is missing from the answer."""
    t.remove(t.all("result")[5])


@RESULTS.wrong("sessions", must="I17, I22")
def result_repeated(t: Trace) -> None:
    """A result was processed twice: its token stands twice in the answer."""
    t.repeat(t.all("result")[5])


@RESULTS.wrong("sessions", must="I22")
def result_of_two_tokens(t: Trace) -> None:
    """A step without speculation brought two tokens."""
    t.first("result")["params"]["tokens"] = 2


@RESULTS.wrong("rounds in flight", must="I22")
def result_of_no_token(t: Trace) -> None:
    """A round brought nothing: not even the bonus token."""
    t.first("result")["params"]["tokens"] = 0


@RESULTS.wrong("chunks in flight", must="I22: a chunk gives no token")
def chunk_that_brought_a_token(t: Trace) -> None:
    """A chunk in the middle of the input brought a token (sglang-jax #994): the event says so, and lengths hide it."""
    t.first("result", where=lambda e: e["params"]["tokens"] == 0)["params"]["tokens"] = 1


@RESULTS.wrong("chunks in flight", must="I22: a chunk gives no token")
def chunk_that_counted_a_token(t: Trace) -> None:
    """A chunk in the middle of the input counted a token."""
    event = t.first("result", where=lambda e: e["params"]["tokens"] == 0)
    event["after"]["output_len"] += 1


def _late(t: Trace) -> list[dict[str, object]]:
    """Results of turns that are over."""
    ended: set[str] = set()
    late = []
    for event in t.events:
        if event["action"] in ("finish", "abort"):
            ended.add(event["turn"])
        elif event["action"] == "result" and event["turn"] in ended:
            late.append(event)
    return late


@RESULTS.wrong("ends in flight", must="I17: as many results as launches")
def late_result_repeated(t: Trace) -> None:
    """The result of an ended turn comes twice: one of the two belongs to somebody else."""
    t.repeat(_late(t)[0])


@RESULTS.wrong("ends in flight", must="I17: as many results as launches")
def late_result_from_nowhere(t: Trace) -> None:
    """Ten results of an ended turn, which had launched one step."""
    late = _late(t)[0]
    for _ in range(10):
        t.repeat(late)


@RESULTS.wrong("ends in flight", must="I17: a late result appends nothing")
def late_result_that_brought_tokens(t: Trace) -> None:
    """A late result says that it appended 100 tokens."""
    _late(t)[0]["params"] = {"tokens": 100}


@RESULTS.wrong("retracts in flight", must="I17")
def late_result_counts(t: Trace) -> None:
    """The result of a step that was dropped by a retract is counted."""
    retract = t.first("retract")
    t.next_of_turn(retract, "result")["after"]["output_len"] = (
        1 + t.next_of_turn(retract, "result")["after"]["output_len"]
    )


@RESULTS.wrong("retracts", must="no rule applies")
def late_result_without_overlap(t: Trace) -> None:
    """A result of an ended turn, without overlap: no step can be in flight."""
    finish = t.first("finish", where=of_session)
    keys = ("session", "turn")
    t.insert_after(finish, {"action": "result", "params": {"tokens": 1}, **{key: finish[key] for key in keys}})


@RESULTS.wrong("sessions", must="refused: a cause is an earlier event")
def result_caused_by_the_future(t: Trace) -> None:
    """A result is caused by an event that comes after it."""
    event = t.first("result")
    event["cause"] = t.next_of_turn(event, "decode")["seq"]


@END.wrong("sessions", must="refused: events are counted")
def end_counts_fewer_events(t: Trace) -> None:
    """The end record counts fewer events than there are: two runs were mixed."""
    t.is_counted = False
    assert t.end is not None
    t.end["events"] -= 1


@END.wrong("sessions", must="incomplete: dropped events")
def end_with_dropped_events(t: Trace) -> None:
    """The recorder dropped events: what they were nobody knows."""
    assert t.end is not None
    t.end["dropped"] = 3


@END.wrong("sessions", must="incomplete: the run ended early")
def end_by_a_crash(t: Trace) -> None:
    """The server crashed: what it would have done is open."""
    assert t.end is not None
    t.end["reason"] = "crashed: IndexError"


@END.wrong("sessions", must="incomplete: no end record")
def end_left_out(t: Trace) -> None:
    """The recorder was killed: the file has no end record."""
    t.end = None


@END.wrong("sessions", must="refused: events are counted from 0")
def events_lost_in_the_middle(t: Trace) -> None:
    """Lines were lost in the middle of the file."""
    t.is_counted = False
    t.remove(*t.events[100:110])


@END.wrong("sessions", must="refused: a record behind the end")
def records_behind_the_end(t: Trace) -> None:
    """Events follow the end record."""
    t.behind = [t.events[-1]]


@END.wrong("sessions", must="refused: a second header")
def two_traces_in_one(t: Trace) -> None:
    """Two traces were joined into one file."""
    assert t.end is not None
    t.behind = [t.header, t.end]


@END.wrong("sessions", must="incomplete: a turn is still running")
def cut_in_the_middle_of_a_turn(t: Trace) -> None:
    """The file was cut while turns ran, and an end record was written behind it: the bug is in the part that is missing."""
    t.cut_behind(t.all("decode")[30])


@END.wrong("sessions", must="incomplete: a turn is still running")
def cut_before_a_prefill(t: Trace) -> None:
    """The file was cut when a turn was matched, and declared finished."""
    t.cut_behind(t.all("match")[4])


@END.wrong("closes", must="incomplete: a close still waits")
def cut_while_a_close_waits(t: Trace) -> None:
    """The file was cut while a close waited, and declared finished: whether it was carried out is hidden."""
    t.cut_behind(t.first("close", where=lambda e: e["after"].get("closing") is True))


@END.wrong("sglang 0.5.11 window", must="incomplete: a turn is still running")
def cut_of_a_real_trace(t: Trace) -> None:
    """A real server's trace, cut in the middle and declared finished."""
    t.cut_behind(t.events[len(t.events) // 2])


@END.wrong("sessions", must="refused: nothing was checked")
def no_event_at_all(t: Trace) -> None:
    """A trace without an event: nothing was checked."""
    t.events = []


def _as_another(t: Trace, turn: str, name: str) -> None:
    """The steps of a session's turn are written as those of another one, and name no session."""
    for event in t.events:
        if event.get("turn") == turn and event["action"] != "create":
            event["turn"] = name
            event.pop("session", None)


@EVENTS.wrong("sessions", must="turn of the session")
def turn_of_an_ended_name(t: Trace) -> None:
    """A session's turn is written under the name of the one before it, which is over: whose answer this is nobody can say."""
    first, second = t.all("create", where=lambda e: e["session"] == t.first("create")["session"])[:2]
    _as_another(t, second["turn"], first["turn"])


@EVENTS.wrong("busy", must="a refused turn keeps its input")
def refused_turn_arrives_with_another_input(t: Trace) -> None:
    """A turn that its session refused is answered with the prompt of somebody else."""
    refused = t.first("create", where=lambda e: not e["params"]["admitted"])
    t.insert_after(refused, {"action": "arrive", "turn": refused["turn"], "params": {"origin_len": 5}, "after": {}})


@EVENTS.wrong("aborts", must="I14: no more is kept than was generated")
def abort_gives_more_than_was_made(t: Trace) -> None:
    """The client of an aborted turn is said to have got a thousand tokens, of which most were never made."""
    t.first("abort").setdefault("params", {})["finished_len"] = 1000
