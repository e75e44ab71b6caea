"""The state of a replay, and how one event is judged in it.

For each event the model's own state says which rule applies. The rule predicts lengths, flags and pages; the trace says what
happened. The first difference is a finding. Deviations that are known of the release are followed and counted, never silent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kvproof.conformance.errors import UserError, at
from kvproof.conformance.replay.batch_in_flight import GIVE_UP, OF_REUSE, BatchInFlight, Reused
from kvproof.conformance.replay.coverage import WITHOUT_RULE, Counting
from kvproof.conformance.replay.fault_diagnosis import (
    BadCheck,
    BadEvent,
    faults_behind_eviction,
    faults_behind_retracts,
)
from kvproof.conformance.replay.judge import (
    LATE_RESULTS,
    LEAVES_ITS_SESSION,
    OF_NO_TURN,
    Difference,
    Judgement,
    check_terms,
    judge,
    parameters,
)
from kvproof.conformance.replay.limits import Limits
from kvproof.conformance.replay.liveness import Liveness, Standing
from kvproof.conformance.replay.memory_check import invariant_of, misplaced_pages, wrong_free_pages, wrong_terms
from kvproof.conformance.replay.missing_event import BeforeEvent, missing_in_words
from kvproof.conformance.replay.page_book import PageBook, RowTable
from kvproof.conformance.replay.passes import RETRACTS, STEPS_OF_A_TURN, Passes
from kvproof.conformance.replay.standstill import turn_in_words, who_holds
from kvproof.conformance.replay.verdict import Finding, Report
from kvproof.conformance.replay.window_book import reaches
from kvproof.conformance.replay.wrong_pages import claimed, lines_of, wrong_pages_of
from kvproof.model.integers import Integers
from kvproof.model.oracle import Oracle, Outcome
from kvproof.spec.actions import ACTIONS, Action
from kvproof.spec.batch import LAUNCHES
from kvproof.spec.events import ADMITS, ENDS, LEAVES
from kvproof.spec.faults import FAULTS, Fault
from kvproof.spec.invariants import INVARIANTS
from kvproof.spec.machine import every_invariant
from kvproof.spec.patience import Patience
from kvproof.spec.profiles import Profile
from kvproof.spec.state import NONE, RUNNING, Ledger, is_live, pristine
from kvproof.spec.trace import Event, Header

FIRST_LINE = 2
"""Line of the first event of a trace: the header is line 1."""
CONTRADICTS = "an event agrees with the header of its trace, and its turn with the events before it"
HAS_WINDOW = "a prefill finds in its row the window of its first token"
RUNS_AT_ONCE = "a batch runs at once: what one of its launches reads or writes, no other is given"
STANDSTILL = "standstill"
"""In place of the rule that a finding is about: no event was wrong, one is missing."""
AFTER_A_DEVIATION = "a turn comes to a session whose state is right"
GOES_ON = "what can continue does continue: no turn and no close stands still"
BESIDE_THE_RULES = (*WITHOUT_RULE, "check")
"""Events that are judged by no rule of a ledger."""


class Headed(Protocol):
    """A trace, or a run that none is written of: it has a header, and a path for people."""

    @property
    def path(self) -> str | Path: ...
    @property
    def header(self) -> Header: ...


@dataclass(frozen=True)
class Excused:
    """An event that did what a known deviation describes."""

    seq: int
    fault: str


@dataclass(frozen=True)
class Unwritten:
    """A run that no trace is written of. `path`: what people see in place of a file's."""

    path: Path
    header: Header


class Replayer:
    """The state of one replay: all ledgers, the page book, and which request belongs to which ledger."""

    def __init__(self, trace: Headed, known: Iterable[Fault], profile: Profile | None = None) -> None:
        config = trace.header.config
        self.path = Path(trace.path)
        self.known = tuple(known)
        self.d = Integers(
            config.page_size,
            config.row_width,
            overlap=config.overlap,
            speculation=config.speculation,
            drafts=config.drafts,
            window=config.window,
            tree=config.tree,
        )
        self.oracle = Oracle(self.d, ACTIONS if profile is None else profile.actions)
        self.book = PageBook(config.pool_pages, self.d, config.window_pages, config.rows)
        self.ledgers: dict[str, Ledger] = {}
        self.of_turn: dict[str, str] = {}
        self.elsewhere: set[str] = set()
        """Turns that are no longer, or never were, their session's: refused, or over."""
        self.ended_in: dict[str, int | None] = {}
        self.late: dict[str, int] = {}
        """Of turns, the launched steps whose results are not known and not awaited: so many may still come, and be dropped."""
        self.came: dict[str, int] = {}
        """Of turns that are not over, how many input tokens their session was shown."""
        self.asked: dict[str, int] = {}
        """Of turns whose abort was asked for, how many steps were launched since."""
        self.excused: dict[str, Excused] = {}
        """Of ledgers, the known deviation that was followed last, whose state is not right since then."""
        self.batch = BatchInFlight()
        self.passes = Passes()
        self.limits = Limits(config)
        self.report = Report(
            self.path,
            config,
            gaps=trace.header.gaps,
            allowed=tuple(fault.id for fault in self.known),
            profile=profile.name if profile else None,
            patience=profile.patience if profile else Patience(),
        )
        self._counting = Counting(self.d, self.report.coverage, self.book.window.is_followed)

    def feed(self, line: int, event: Event) -> Finding | None:
        """Judge one event; advance the model when it is allowed (or follows a known deviation)."""
        self.report.events += 1
        self.report.pages_moved += sum(map(len, (event.alloc, event.free, event.window_alloc, event.window_free)))
        begins_a_pass = self.passes.begins_with(event)
        finding = self._judge(line, event)
        if finding is None and (wrong := tuple(self.limits.broken_by(event))):
            return self._contradiction(line, event, wrong, self.ledger_of(event) or "all")
        if finding is not None:
            return finding
        if event.action == RETRACTS:
            return self._goes_round(line, event)
        if event.turn in self.asked and (runs_on := self._runs_on(line, event)):
            return runs_on
        return self._stands_still(line, event) if event.params.get("idle_passes") or begins_a_pass else None

    @property
    def liveness(self) -> Liveness:
        """Who stands still now."""
        report = self.report
        return Liveness(self.d, report.config.rows, report.patience, self.ledgers, self.book, self.passes)

    def open_turns(self) -> dict[str, str]:
        """Turns that are not over, with their ledgers. One that left its session may run on as a request of its own."""
        return {
            name: key
            for name, key in self.of_turn.items()
            if name not in self.elsewhere or key == own_ledger(name)
            if (ledger := self.ledgers.get(key)) is not None and ledger.phase != NONE
        }

    def _judge(self, line: int, event: Event) -> Finding | None:
        """By the rules, apart from what the header says."""
        if event.action in BESIDE_THE_RULES:
            self._counting.beside_the_rules(event)
            return self._beside_the_rules(line, event)
        wrong = self._name_in_use(event)
        key = self._key(line, event)
        before = self.ledgers.get(key, pristine(self.d))
        is_another = event.session is not None and event.action != "create" and event.turn in self.elsewhere
        if wrong := wrong or self._wrong_turn(event, key, is_another):
            cause = self._missing_before(event, key, before)
            return self._contradiction(line, event, wrong, key, cause=cause)
        if event.action == "create" and (consequence := self._consequence(line, event, key, before)):
            return consequence
        action = self.oracle.applicable(event.action, before, is_another)
        if action is None:
            self.report.actions[event.action] += 1
            return self._out_of_order(line, event, key, before)
        try:
            given = parameters(event, action, before)
            judgement = judge(self.d, self.book, key, self.oracle.step(action, before, given), event)
        except UserError as error:
            raise UserError(f"{at(self.path, line)}: {error.message}") from error
        self._counting.step(event, before, given, judgement)
        if self._is_clean(judgement):
            if wrong := self._from_nowhere(event, action):
                invariants = {"I17": every_invariant()["I17"].statement}
                return self._contradiction(line, event, wrong, key, invariants=invariants)
            if wrong := (
                *self.limits.too_long_a_chunk(event, before),
                *self._wrong_launch(event, action, before),
                *self._other_input(event, action),
            ):
                return self._contradiction(line, event, wrong, key)
            if lost := self._lost_window(event, key, before):
                return self._finding(
                    line,
                    event,
                    ledger=key,
                    action=event.action,
                    rule=HAS_WINDOW,
                    before=before,
                    pages=(lost,),
                    invariants={"I9": every_invariant()["I9"].statement},
                )
            if reused := tuple(self._reused(event, judgement)):
                return self._reuse(line, event, reused, key)
            self._advance(key, judgement, event)
            return None
        return self._deviation(line, event, key, before, judgement)

    def _beside_the_rules(self, line: int, event: Event) -> Finding | None:
        match event.action:
            case "evict":
                return self._evict(line, event)
            case "check":
                return self._check(line, event)
            case _:
                return self._ask_abort(line, event)

    def _key(self, line: int, event: Event) -> str:
        """The ledger that an event is about. A request that its session refused or detached has one of its own."""
        if event.session is not None:
            key = f"session {event.session}"
            if event.turn is not None and event.action == "create" and event.params.get("admitted") is not False:
                self.of_turn[event.turn] = key
            return key
        if event.turn is None:
            raise UserError(f"{at(self.path, line)}: {event.action!r} names neither a session nor a turn")
        key = self.of_turn.get(event.turn, own_ledger(event.turn))
        if event.action == "arrive":
            key = own_ledger(event.turn)
        self.of_turn[event.turn] = key
        return key

    def _name_in_use(self, event: Event) -> tuple[str, ...]:
        """A turn begins under a name that no other turn has which is not over; whose it is otherwise, as a sentence."""
        if event.turn is None or event.action not in ADMITS:
            return ()
        whose = () if event.turn in self.elsewhere else (self.of_turn.get(event.turn, ""),)
        for key in (*whose, own_ledger(event.turn)):
            if key in self.ledgers and self.ledgers[key].phase != NONE:
                return (f"turn {event.turn} is of {key}, and is not over",)
        return ()

    def _wrong_turn(self, event: Event, key: str, is_another: bool) -> tuple[str, ...]:
        """A turn is of the session that it was created in, until it leaves that; what is wrong with it, as a sentence."""
        if event.turn is None and event.action not in OF_NO_TURN:
            return (f"it names no turn of {key}",)
        if event.session is None and event.turn in self.elsewhere and key != own_ledger(event.turn or ""):
            return (f"turn {event.turn} is no turn of {key} any more, or never was",)
        if event.session is None or event.turn is None or event.action == "create" or is_another:
            return ()
        whose = self.of_turn.get(event.turn)
        if whose == key:
            return ()
        return (f"turn {event.turn} is of {whose}" if whose else f"turn {event.turn} was not created in {key}",)

    def _from_nowhere(self, event: Event, action: Action) -> tuple[str, ...]:
        """A late result is that of a step which was launched (I17), each once."""
        if action.name not in LATE_RESULTS or (event.turn is not None and self.late.get(event.turn)):
            return ()
        return (f"all results of turn {event.turn} are known: it launched no other step",)

    def _wrong_launch(self, event: Event, action: Action, before: Ledger) -> Iterator[str]:
        """What is wrong with the step of a launch, or with the launch whose result an event is, as sentences."""
        if event.action in LAUNCHES:
            yield from self.batch.contradicted_by(event, overlap=self.d.overlap)
        elif event.action == "result" and event.turn is not None:
            yield from self.batch.runs_twice(event.turn, overlap=self.d.overlap)
            if event.cause is None or not self.d.overlap:
                return
            pending = 0 if action.of_another else int(before.pending)
            if event.cause + 1 not in self.batch.in_flight(event.turn, pending + self.late.get(event.turn, 0)):
                yield f"this is the late result of event {event.cause}, which launched no step of turn {event.turn} in flight"

    def _other_input(self, event: Event, action: Action) -> Iterator[str]:
        """A turn that its session refused continues with the input that it came with."""
        shown = event.params.get("origin_len" if event.action == "arrive" else "fill_len")
        came = self.came.get(event.turn or "", shown)
        if (event.action == "arrive" or (event.action == "match" and action.of_another)) and shown not in (None, came):
            yield f"turn {event.turn} came with {came} tokens to its session, and here it has {shown}"

    def ledger_of(self, event: Event) -> str | None:
        """The ledger that an event was about which was judged; None: that of no session or request."""
        if event.session is not None:
            return f"session {event.session}"
        return self.of_turn.get(event.turn) if event.turn is not None else None

    def _is_clean(self, judgement: Judgement) -> bool:
        outcome = judgement.outcome
        return (
            judgement.agrees
            and not outcome.failed_guards
            and not judgement.moves.problems
            and not outcome.broken(self.d)
        )

    def _advance(self, key: str, judgement: Judgement, event: Event) -> None:
        if not judgement.outcome.action.of_another:
            self._follow_batch(self.book.table(key), judgement, event)
        self.book.commit(judgement.moves)
        after = judgement.outcome.after
        if event.turn is not None and event.action == "create":
            self.elsewhere.discard(event.turn)  # clients may use a name again
        if event.turn is not None and (event.action in ENDS or event.params.get("admitted") is False):
            self.elsewhere.add(event.turn)
        if event.turn is not None and judgement.outcome.action.name in LEAVES_ITS_SESSION:
            self.of_turn[event.turn] = own_ledger(event.turn)
        if event.action in ENDS:
            self.ended_in[key] = event.step
        if event.turn is not None:
            self._count_late(event.turn, event.action, judgement.outcome)
            self._count_asked(event.turn, event.action)
            self._note_input(event.turn, event)
        if not judgement.outcome.action.of_another:
            self.passes.see(event, key, is_late=judgement.outcome.action.name in LATE_RESULTS)
        if after.phase == NONE:
            self.book.prefixes.forget(key)
        if after == pristine(self.d):
            self.ledgers.pop(key, None)
            self.passes.forget(key)
        else:
            self.ledgers[key] = after

    def _lost_window(self, event: Event, key: str, before: Ledger) -> str:
        """What a prefill that continues a row cannot read any more, as a sentence."""
        table = self.book.table(key)
        start: Any = before.prefix_len
        if event.action != "extend" or table is None:
            return ""
        page = self.book.without_window(table.pages, start)
        if page is None:
            return ""
        return f"page {page} of its row has no window page, and the window of token {start} reaches it"

    def _reused(self, event: Event, judgement: Judgement) -> Iterator[Reused]:
        """What a launch is given although another of its batch uses it; whether it was asked is counted, too."""
        table = judgement.moves.table
        if self.d.overlap and event.action in LAUNCHES and table is not None:
            if self.batch.taken_over(event):
                self.report.coverage.invariants[OF_REUSE] += 1
            yield from self.batch.reused_by(event, table.row)

    def _reuse(self, line: int, event: Event, reused: tuple[Reused, ...], key: str) -> Finding:
        return self._finding(
            line,
            event,
            ledger=key,
            action=event.action,
            rule=RUNS_AT_ONCE,
            pages=tuple(r.sentence for r in reused),
            invariants={r.invariant: every_invariant()[r.invariant].statement for r in reused},
            cause=reused[0].cause,
        )

    def _follow_batch(self, table: RowTable | None, judgement: Judgement, event: Event) -> None:
        """Which steps are in flight; with overlap, also which rows and pages they use. `table`: the row before the event."""
        launched, after = judgement.moves.table, judgement.outcome.after
        is_known = event.action == "result" and after.pending == 0
        if event.action in LAUNCHES and launched is not None:
            self.batch.launch(event, gives_a_token=after.phase == RUNNING)
            if self.d.overlap:
                self.batch.use(event, launched.row)
            return
        if is_known:
            self.batch.await_no_more(event.turn)
        elif event.action in LEAVES:
            self.batch.leave(event.turn, overlap=self.d.overlap)
        if not self.d.overlap or table is None:
            return
        if is_known:
            self.batch.know_results(table.row)
        elif event.action in GIVE_UP:
            pages = table.pages if event.action != "window" else ()
            behind = (self.book.window.of(page) for page in pages)
            windows = event.window_free if event.action == "window" else [w for w in behind if w is not None]
            self.batch.let_go(event, table.row, pages, windows)

    def _count_late(self, turn: str, event: str, outcome: Outcome) -> None:
        """A launch whose result the ledger does not await: of a turn that leaves, or of the chunk before the last one."""
        launched = outcome.before.pending + (event == "extend")
        if (event in LEAVES or (event == "extend" and self.d.overlap)) and not outcome.action.of_another:
            left = self.late.get(turn, 0) + launched - outcome.after.pending
        elif outcome.action.name in LATE_RESULTS:
            left = self.late.get(turn, 0) - 1
        else:
            return
        if left > 0:
            self.late[turn] = left
        else:
            self.late.pop(turn, None)

    def _note_input(self, turn: str, event: Event) -> None:
        if event.action == "create":
            self.came[turn] = event.params.get("origin_len") or 0
        elif event.action in (*ENDS, "arrive"):
            self.came.pop(turn, None)

    def _count_asked(self, turn: str, event: str) -> None:
        if event in ENDS:
            self.asked.pop(turn, None)
        elif turn in self.asked and event in STEPS_OF_A_TURN:
            self.asked[turn] += 1

    def _deviation(self, line: int, event: Event, key: str, before: Ledger, right: Judgement) -> Finding | None:
        """The rule does not allow what was seen. A known deviation of the release is followed; else it is a finding."""
        bad = BadEvent(self.oracle, self.book, key, before, event, right)
        for fault in self.known:
            if (followed := bad.follows(fault)) is not None:
                self.report.followed[fault.id] += 1
                self._advance(key, followed, event)
                self.excused[key] = Excused(event.seq, fault.id)
                return None
        explained = bad.explained_by()
        action = right.outcome.action
        return self._finding(
            line,
            event,
            ledger=key,
            action=action.name,
            rule=action.summary,
            before=before,
            differences=right.differences,
            pages=tuple(lines_of(right, event, self.book)),
            invariants=bad.broken(explained),
            explained_by=tuple(explained),
            cause="" if explained else self._missing_before(event, key, before),
            wrong=tuple(wrong_pages_of(right, key, event, self.book)),
        )

    def _consequence(self, line: int, event: Event, key: str, before: Ledger) -> Finding | None:
        """A known deviation excuses the step that it describes, and its turn until that is over. A turn that comes later and
        finds the state still wrong is a consequence, and excused by nothing.
        """
        excused = self.excused.pop(key, None)
        if excused is None:
            return None
        invariants = {i.id: i.statement for i in INVARIANTS.values() if not i.holds(self.d, before)}
        if not invariants:
            return None
        fault = FAULTS[excused.fault]
        return self._finding(
            line,
            event,
            ledger=key,
            action=event.action,
            rule=AFTER_A_DEVIATION,
            before=before,
            invariants=invariants,
            explained_by=(fault,),
            cause=f"event {excused.seq} did what {fault.id} describes, and it was never set right",
        )

    def _missing_before(self, event: Event, key: str, before: Ledger) -> str:
        search = BeforeEvent(self.oracle, self.book, self.ledgers)
        if missing := search.event_of(key, before, event):
            return missing_in_words(event, missing, key)
        owner, missing = search.event_of_an_owner(key, before, event)
        return missing_in_words(event, missing, owner)

    def _finding(self, line: int, event: Event, **found: Any) -> Finding:
        return Finding(path=self.path, line=line, event=event, profile=self.report.profile, **found)

    def _contradiction(self, line: int, event: Event, wrong: tuple[str, ...], ledger: str, **found: Any) -> Finding:
        """The event shows what it may not show under the header of its trace, or after the events before it."""
        return self._finding(line, event, ledger=ledger, action=event.action, rule=CONTRADICTS, pages=wrong, **found)

    def _out_of_order(self, line: int, event: Event, key: str, before: Ledger) -> Finding:
        rules = ", ".join(a.name for a in self.oracle.actions.values() if a.event == event.action)
        sentence = f"no rule for {event.action!r} ({rules}) applies in this state"
        cause = self._missing_before(event, key, before)
        return self._finding(line, event, ledger=key, action=event.action, rule=sentence, before=before, cause=cause)

    def _stands_still(self, line: int, event: Event) -> Finding | None:
        """Of an event that says that nothing was found to run, or that begins a pass."""
        idle_passes = event.params.get("idle_passes") or 0
        if idle_passes:
            self.passes.idle_at = self.report.events
        if not idle_passes and not self.passes.is_due(self.report.events - 1):
            return None
        standing = next(self.liveness.standing(idle_passes), None)
        return None if standing is None else self._standstill(line, event, standing)

    def _goes_round(self, line: int, event: Event) -> Finding | None:
        """Of a retract."""
        key = self.ledger_of(event)
        standing = self.liveness.goes_round(key) if key is not None else None
        if standing is None:
            return None
        said = f"{event.turn}: {standing.how}"
        return self._standstill(line, event, standing, said, explained_by=tuple(faults_behind_retracts()))

    def _ask_abort(self, line: int, event: Event) -> Finding | None:
        """Somebody wants a turn aborted that is not over. It changes nothing, but from here on the turn is to end."""
        key = self.ledger_of(event)
        ledger = self.ledgers.get(key) if key is not None else None
        has_left = event.session is not None and (
            event.turn in self.elsewhere or key != self.of_turn.get(event.turn or "")
        )
        if event.turn is None or ledger is None or ledger.phase == NONE or has_left:
            wrong = f"turn {event.turn} is not there any more, or never was: its abort cannot be asked for"
            return self._contradiction(line, event, (wrong,), key or "all")
        self.asked.setdefault(event.turn, 0)
        return None

    def _runs_on(self, line: int, event: Event) -> Finding | None:
        """Of a turn whose abort was asked for."""
        key = self.ledger_of(event)
        if key is None or event.turn is None or event.action not in STEPS_OF_A_TURN:
            return None
        standing = self.liveness.runs_on(key, self.asked[event.turn])
        return None if standing is None else self._standstill(line, event, standing, f"{event.turn}: {standing.how}")

    def _standstill(self, line: int, event: Event, standing: Standing, *said: str, **found: Any) -> Finding:
        live = self.liveness
        turn = next((turn for turn, key in self.open_turns().items() if key == standing.key), None)
        first = f"the close of {standing.key} waits" if turn is None else turn_in_words(live, turn, standing.key)
        marked = ["the scheduler marks its batch as full"] if event.params.get("marked_full") else []
        followed = ", ".join(self.report.followed)
        return self._finding(
            line,
            event,
            ledger=standing.key,
            action=STANDSTILL,
            rule=f"{standing.waits_for}: {standing.how}",
            before=self.ledgers[standing.key],
            pages=(*said, first, *marked, *who_holds(live)),
            invariants={"I18": GOES_ON},
            cause=f"followed before: {followed}" if followed else "",
            **found,
        )

    def _evict(self, line: int, event: Event) -> Finding | None:
        problems = self.book.evict(event, lambda key, position: still_needs(self.d, self.ledgers[key], position))
        if not problems:
            return None
        return self._finding(
            line,
            event,
            ledger="tree",
            action="evict",
            rule="the tree evicts pages that no row's protected prefix holds, each with all that continue it",
            pages=tuple(p.sentence for p in problems),
            invariants={p.invariant: p.sentence for p in problems},
            explained_by=tuple(faults_behind_eviction(problems)),
            wrong=tuple(page for page in map(claimed, problems) if page is not None),
        )

    def _check(self, line: int, event: Event) -> Finding | None:
        """The implementation's own terms against the true counts. It changes nothing, so the replay may go on."""
        differences = [*wrong_terms(event, self.book, check_terms(self.oracle, self.ledgers, frozenset()))]
        if event.params.get("busy") is False and any(is_live(self.d, ledger) for ledger in self.ledgers.values()):
            differences.append(Difference("busy", None, True, False))
        lines = wrong_free_pages(event, self.book)
        if lines:
            differences.append(Difference("free list", None, "as the trace's own moves say", lines[0]))
        if not differences:
            return None
        ended = {key for key, step in self.ended_in.items() if step is not None and step == event.step}
        explained = BadCheck(self.oracle, self.ledgers, ended, event).explained_by(differences)
        if known := [f for f in explained if f in self.known]:
            self.report.followed[known[0].id] += 1
            return None
        return self._finding(
            line,
            event,
            ledger="all",
            action="check",
            rule=self.oracle.actions["check"].summary,
            differences=tuple(differences),
            pages=tuple(lines),
            invariants={i: every_invariant()[i].statement for i in sorted({invariant_of(d) for d in differences})},
            explained_by=tuple(explained),
            cause="" if explained else self._missing_before_check(event),
            wrong=tuple(misplaced_pages(event, self.book)),
        )

    def _missing_before_check(self, event: Event) -> str:
        key, missing = BeforeEvent(self.oracle, self.book, self.ledgers).event_before_check(event)
        return missing_in_words(event, missing, key)


def own_ledger(turn: str) -> str:
    """Of a turn that is in no session."""
    return f"request {turn}"


def still_needs(d: Integers, s: Ledger, position: int) -> bool:
    """Whether the sliding window of a ledger's next token reaches the page at this position (in pages) of its row."""
    end = s.kv_committed_len if is_live(d, s) else s.slot_kv_committed_len
    reached: bool = reaches(end, d.window, d.tokens(position + 1))
    return reached
