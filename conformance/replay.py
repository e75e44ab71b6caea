"""Replay: a trace against the specification, event by event, page by page.

For each event the model's own state says which rule applies. The rule predicts lengths, flags and pages; the trace says what
happened. The first difference ends the replay: what follows a broken state says nothing. Deviations that the trace's
header declares as known of its release are followed and counted, never silent.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kvproof.conformance.coverage import Counting
from kvproof.conformance.errors import UserError, at, unknown
from kvproof.conformance.judge import ABOUT, Difference, Judgement, check_terms, judge, parameters
from kvproof.conformance.memory_check import (
    invariant_of,
    is_about_holders,
    seen_of_holders,
    true_of_holders,
    wrong_free_pages,
    wrong_terms,
)
from kvproof.conformance.pagebook import PageBook
from kvproof.conformance.trace_io import TraceReader, is_columnar, read_trace
from kvproof.conformance.tree_faults import faults_behind_counters, faults_behind_eviction
from kvproof.conformance.verdict import CONFORMS, INCOMPLETE, VIOLATES, Finding, Report
from kvproof.model.integers import Integers
from kvproof.model.oracle import Oracle
from kvproof.spec import SPEC_VERSION
from kvproof.spec.actions import ACTIONS
from kvproof.spec.faults import FAULTS, Fault, actions_with
from kvproof.spec.invariants import INVARIANTS
from kvproof.spec.machine import every_invariant
from kvproof.spec.state import Ledger, is_live, pristine
from kvproof.spec.trace import End, Event

if TYPE_CHECKING:
    from kvproof.conformance.checkpoint import Checkpoints

__all__ = ["CONFORMS", "INCOMPLETE", "VIOLATES", "Finding", "Replayer", "Report", "is_large", "replay"]

Progress = Callable[[int, float | None], None]
"""Is told the events so far and the share of the file that they are, where that is known."""
Pause = Callable[[Callable[[], None]], None]
"""Is called between events, with what makes the replayer's state that of the last one."""
Follow = Callable[["TraceReader", Callable[[int], None], "int | None", Pause], bool]
ENDS = ("finish", "abort")
"""Events after which a turn is over."""
BESIDE_THE_RULES = ("evict", "check")
"""Events of no ledger."""

AUTO, COMPILED, INTERPRETED = CHECKERS = ("auto", "compiled", "interpreted")
LARGE = 2**25
"""Bytes of lines from which the compiled checker pays for its start, which is half a minute the first time."""
LARGE_IN_COLUMNS = 2**21
"""The same of a trace in columns, or of one that is packed: an event takes a sixteenth there."""


class Replayer:
    """The state of one replay: all ledgers, the page book, and which request belongs to which ledger."""

    def __init__(self, reader: TraceReader, known: Iterable[Fault]) -> None:
        config = reader.header.config
        self.path = Path(reader.path)
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
        self.oracle = Oracle(self.d, ACTIONS)
        self.book = PageBook(config.pool_pages, self.d, config.window_pages)
        self.ledgers: dict[str, Ledger] = {}
        self.of_turn: dict[str, str] = {}
        self.elsewhere: set[str] = set()
        """Turns that are no longer, or never were, their session's: refused, or over."""
        self.ended_in: dict[str, int | None] = {}
        self.report = Report(self.path, config, gaps=reader.header.gaps)
        self._counting = Counting(self.d, self.report.coverage)

    def feed(self, line: int, event: Event) -> Finding | None:
        """Judge one event; advance the model when it is allowed (or follows a known deviation)."""
        self.report.events += 1
        self.report.pages_moved += sum(map(len, (event.alloc, event.free, event.window_alloc, event.window_free)))
        if event.action in BESIDE_THE_RULES:
            self._counting.beside_the_rules(event, self.book.window.is_followed)
            return self._evict(line, event) if event.action == "evict" else self._check(line, event)
        key = self._key(line, event)
        before = self.ledgers.get(key, pristine(self.d))
        is_another = event.session is not None and event.action != "create" and event.turn in self.elsewhere
        action = self.oracle.applicable(event.action, before, is_another)
        if action is None:
            self.report.actions[event.action] += 1
            return self._out_of_order(line, event, key, before)
        try:
            given = parameters(event, action, before)
            judgement = judge(self.oracle, self.book, key, action, before, event)
        except UserError as error:
            raise UserError(f"{at(self.path, line)}: {error.message}") from error
        self._counting.step(action, before, given, judgement.outcome.after)
        if self._is_clean(judgement):
            self._advance(key, judgement, event)
            return None
        return self._deviation(line, event, key, before, judgement)

    def _key(self, line: int, event: Event) -> str:
        """The ledger that an event is about. A request that its session refused or detached has one of its own."""
        if event.session is not None:
            key = f"session {event.session}"
            if event.turn is not None and event.params.get("admitted") is not False:
                self.of_turn.setdefault(event.turn, key)
            return key
        if event.turn is None:
            raise UserError(f"{at(self.path, line)}: {event.action!r} names neither a session nor a turn")
        key = self.of_turn.get(event.turn, f"request {event.turn}")
        if event.action == "arrive":
            key = f"request {event.turn}"
        self.of_turn[event.turn] = key
        return key

    def _is_clean(self, judgement: Judgement) -> bool:
        outcome = judgement.outcome
        return (
            judgement.agrees
            and not outcome.failed_guards
            and not judgement.moves.problems
            and not outcome.broken(self.d)
        )

    def _advance(self, key: str, judgement: Judgement, event: Event) -> None:
        self.book.commit(judgement.moves)
        after = judgement.outcome.after
        if event.turn is not None and event.action == "create":
            self.elsewhere.discard(event.turn)  # clients may use a name again
        if event.turn is not None and (event.action in ENDS or event.params.get("admitted") is False):
            self.elsewhere.add(event.turn)
        if event.action in ENDS:
            self.ended_in[key] = event.step
        if after == pristine(self.d):
            self.ledgers.pop(key, None)
        else:
            self.ledgers[key] = after

    def _deviation(self, line: int, event: Event, key: str, before: Ledger, right: Judgement) -> Finding | None:
        """The rule does not allow what was seen. A known deviation of the release is followed; else it is a finding."""
        for fault in self.known:
            if right.outcome.action.name in fault.in_traces:
                followed = self._under(fault, right.outcome.action.name, key, before, event)
                if followed.agrees and not followed.moves.problems:
                    self.report.followed[fault.id] += 1
                    self._advance(key, followed, event)
                    return None
        outcome = right.outcome
        name = outcome.action.name
        explained = [f for f in _catalogue(name) if self._explains(f, right, key, before, event)]
        return Finding(
            self.path,
            line,
            event,
            key,
            outcome.action.name,
            outcome.action.summary,
            before,
            right.differences,
            tuple(_page_lines(right, event, self.book)),
            self._broken(right, explained, key, before, event),
            tuple(explained),
        )

    def _explains(self, fault: Fault, right: Judgement, key: str, before: Ledger, event: Event) -> bool:
        """Whether it predicts what was seen. Where only a guard failed, it has to be one that the fault lifts."""
        followed = self._under(fault, right.outcome.action.name, key, before, event)
        return followed.agrees and (bool(right.differences) or not followed.outcome.failed_guards)

    def _under(self, fault: Fault, action: str, key: str, before: Ledger, event: Event) -> Judgement:
        """The same event judged by the faulty form of the action."""
        return judge(Oracle(self.d, actions_with(fault)), self.book, key, fault.in_traces[action], before, event)

    def _broken(
        self, right: Judgement, explained: list[Fault], key: str, before: Ledger, event: Event
    ) -> dict[str, str]:
        """Invariants that the event breaks: by what it did to pages, by what the fault that explains it does.

        Without an explanation the true state is unknown: then those are named that the differing values are about.
        """
        found = {problem.invariant: problem.sentence for problem in right.moves.problems}
        if explained:
            fault = explained[0]
            broken = self._under(fault, right.outcome.action.name, key, before, event).outcome.broken(self.d)
            found = {**broken, **found} or {i: fault.machine.invariants[i].statement for i in fault.breaks}
        else:
            about = dict.fromkeys(ABOUT[d.name] for d in right.differences)
            found = {**{i: INVARIANTS[i].statement for i in about}, **found}
        return {**found, **{f"guard of {event.action}": g.sentence for g in right.outcome.failed_guards}}

    def _out_of_order(self, line: int, event: Event, key: str, before: Ledger) -> Finding:
        rules = ", ".join(a.name for a in ACTIONS.values() if a.event == event.action)
        sentence = f"no rule for {event.action!r} ({rules}) applies in this state"
        return Finding(self.path, line, event, key, event.action, sentence, before, (), (), {})

    def _evict(self, line: int, event: Event) -> Finding | None:
        problems = self.book.evict(event, self._still_needs)
        if not problems:
            return None
        broken = {p.invariant: p.sentence for p in problems}
        rule = "the tree evicts pages that no row's protected prefix holds"
        found = ((), tuple(p.sentence for p in problems), broken, tuple(faults_behind_eviction(problems)))
        return Finding(self.path, line, event, "tree", "evict", rule, None, *found)

    def _still_needs(self, key: str, position: int) -> bool:
        """Whether the sliding window of a ledger's next token reaches the page at this position (in pages) of its row."""
        s = self.ledgers[key]
        end = s.kv_committed_len if is_live(self.d, s) else s.slot_kv_committed_len
        return self.d.tokens(position + 1) > end - self.d.window

    def _check(self, line: int, event: Event) -> Finding | None:
        """The implementation's own terms against the true counts. It changes nothing, so the replay may go on."""
        if event.terms is None:
            return None
        differences = [*wrong_terms(event, self.book, check_terms(self.oracle, self.ledgers, frozenset()))]
        lines = wrong_free_pages(event, self.book)
        if lines:
            differences.append(Difference("free list", None, "as the trace's own moves say", lines[0]))
        if not differences:
            return None
        explained = self._faults_of_check(event, differences)
        if known := [f for f in explained if f in self.known]:
            self.report.followed[known[0].id] += 1
            return None
        rule = ACTIONS["check"].summary
        broken = {i: every_invariant()[i].statement for i in sorted({invariant_of(d) for d in differences})}
        found = (tuple(differences), tuple(lines), broken, tuple(explained))
        return Finding(self.path, line, event, "all", "check", rule, None, *found)

    def _faults_of_check(self, event: Event, differences: list[Difference]) -> list[Fault]:
        if all(map(is_about_holders, differences)):
            return [f for f in _catalogue("check") if seen_of_holders(event) in self._terms_under(f, event)]
        return faults_behind_counters(differences)

    def _terms_under(self, fault: Fault, event: Event) -> list[tuple[int, ...]]:
        """What the faulty check may read: turns that ended in this step may or may not stand in the last batch."""
        oracle = Oracle(self.d, actions_with(fault))
        ended = {key for key, step in self.ended_in.items() if step is not None and step == event.step}
        reports = (check_terms(oracle, self.ledgers, lingering) for lingering in (set[str](), ended))
        return [true_of_holders(report, event) for report in reports]


def replay(
    path: str | Path,
    *,
    strict: bool = False,
    progress: Progress = lambda *_: None,
    checker: str = AUTO,
    until: int | None = None,
    checkpoints: Checkpoints | None = None,
    resume: bool = False,
) -> Report:
    """Replay one trace. `strict`: deviations that the header declares as known of the release are violations too.

    `checker`: who judges. The compiled one is these rules too, traced and compiled (`conformance/compiled/`); what it does not
    find clean the interpreted one judges. `auto`: compiled, if that is installed and the trace is large. `until`: the seq of the
    last event to judge. `checkpoints`: where the state is written at times and at the end; `resume`: and read at first.
    """
    reader = read_trace(path)
    replayer = replayer_of(reader, strict=strict)
    report = replayer.report
    if reader.slice is not None and not reader.slice.can_be_replayed:
        report.why = f"{path}: {reader.slice.why_not_replayed}"
        return report
    from kvproof.conformance.slice_state import begin_with_state

    begin_with_state(replayer, reader, resumes=resume)
    if checkpoints is None:
        return follow(reader, replayer, progress, checker, until)
    if resume:
        checkpoints.resume(replayer, reader, strict)
    with checkpoints.heeding_ctrl_c():
        pause = partial(checkpoints.write_if_due, replayer, reader, strict)
        follow(reader, replayer, progress, checker, until, pause)
        checkpoints.write(replayer, reader, strict)
    return report


def follow(
    reader: TraceReader,
    replayer: Replayer,
    progress: Progress,
    checker: str,
    until: int | None,
    pause: Pause = lambda _: None,
) -> Report:
    """Judge what there is to judge, and say how it ended."""
    report, size = replayer.report, max(1, reader.path.stat().st_size)

    def told(events: int) -> None:
        progress(events, reader.position / size if reader.position else None)

    bounded = False
    if not report.is_over:
        follow = _compiled(replayer, checker) or partial(_follow_interpreted, replayer)
        bounded = follow(reader, told, until, pause)
    if bounded and not report.findings:
        report.why = f"{reader.path}: judged up to event {until}, as asked; the verdict of the whole is open"
        return report
    return conclude(report, reader)


def _follow_interpreted(
    replayer: Replayer, reader: TraceReader, progress: Callable[[int], None], until: int | None, pause: Pause
) -> bool:
    """Judge event by event; True if there is more behind the last event that was to be judged."""
    report, place, first = replayer.report, reader.place, reader.first_seq
    for line, record in reader:
        if isinstance(record, End):
            break
        if isinstance(record, Event) and record.seq >= first + report.events:
            if until is not None and record.seq > until:
                reader.place = place
                return True
            finding = replayer.feed(line, record)
            progress(report.events)
            if finding is not None:
                report.findings.append(finding)
                if report.is_over:
                    break
            pause(lambda: None)
        place = reader.place
    return False


def _compiled(replayer: Replayer, checker: str) -> Follow | None:
    """The compiled checker, if it was asked for, or pays and is there."""
    path = replayer.path
    if not _judges_compiled(checker, path):
        return None
    from kvproof.conformance.compiled.checker import CompiledChecker, the_judge

    if CompiledChecker.can_judge(replayer):
        return CompiledChecker(replayer, the_judge()).follow_trace
    if checker == COMPILED:
        raise UserError(f"{at(path, 1)}: the compiled checker takes no configuration this large: --checker interpreted")
    return None


def replayer_of(reader: TraceReader, *, strict: bool) -> Replayer:
    """At the beginning of a trace. Raises UserError if its header asks for what this kvproof does not know."""
    path = reader.path
    if reader.header.spec != SPEC_VERSION:
        raise UserError(
            f"{at(path, 1)}: written for specification {reader.header.spec!r}; this kvproof checks {SPEC_VERSION!r}"
        )
    return Replayer(reader, [] if strict else [_known(name, path) for name in reader.header.known_deviations])


def _judges_compiled(checker: str, path: str | Path) -> bool:
    """Whether the compiled checker was asked for, or pays and is there."""
    if checker == INTERPRETED or (checker == AUTO and not is_large(path)):
        return False
    missing = [name for name in ("numpy", "pyarrow", "numba") if importlib.util.find_spec(name) is None]
    if missing and checker == COMPILED:
        raise UserError(f"the compiled checker needs {' and '.join(missing)}: pip install 'kvproof[scale]'")
    return not missing


def is_large(path: str | Path) -> bool:
    """Whether the interpreted checker would take longer over a trace than the compiled one needs to start."""
    packed = is_columnar(path) or Path(path).suffix == ".gz"
    return Path(path).stat().st_size >= (LARGE_IN_COLUMNS if packed else LARGE)


def conclude(report: Report, reader: TraceReader) -> Report:
    """The verdict over a trace that was followed as far as it goes."""
    end = reader.end
    if report.findings:
        report.verdict = VIOLATES
    elif reader.broken_off is not None:
        report.why = reader.broken_off
    elif end is None:
        report.why = f"{report.path}: no terminal record: the recorder did not finish"
    elif end.dropped:
        report.why = f"{report.path}: the recorder dropped {end.dropped} events"
    elif end.reason != "finished":
        report.why = f"{report.path}: the run ended early: {end.reason}"
    else:
        report.verdict = CONFORMS
    return report


def _known(name: str, path: str | Path) -> Fault:
    if name not in FAULTS:
        raise UserError(f"{at(path, 1)}: known_deviations: {unknown('deviation', name, FAULTS).message}")
    return FAULTS[name]


def _catalogue(action: str) -> list[Fault]:
    """Real deviations of one action; mutations explain nothing."""
    return [f for f in FAULTS.values() if action in f.in_traces and f.kind != "mutation"]


def _page_lines(right: Judgement, event: Event, book: PageBook) -> Iterable[str]:
    """Pages that moved wrongly, by owner."""
    for problem in right.moves.problems:
        yield problem.sentence
    expected, seen = Counter(right.moves.freed), Counter(event.free)
    for owner, pages in _by_owner((seen - expected).elements(), book):
        yield f"{_named(pages)} freed; the owner was {owner}"
    for owner, pages in _by_owner((expected - seen).elements(), book):
        yield f"{_named(pages)} not freed; the owner was {owner}"
    if book.window.is_followed:
        yield from _window_lines(Counter(right.moves.window.freed), Counter(event.window_free), book)


def _window_lines(expected: Counter[int], seen: Counter[int], book: PageBook) -> Iterable[str]:
    for window in sorted((seen - expected).elements()):
        page = book.window.behind(window)
        owner = "free already" if page is None else f"behind page {page} of {book.owner(page)}"
        yield f"window page {window} was freed; it was {owner}"
    for window in sorted((expected - seen).elements()):
        page = book.window.behind(window)
        yield f"window page {window} was not freed; it is behind page {page}"


def _by_owner(pages: Iterable[int], book: PageBook) -> Iterable[tuple[str, list[int]]]:
    groups: dict[str, list[int]] = {}
    for page in sorted(pages):
        groups.setdefault(book.owner(page), []).append(page)
    return groups.items()


def _named(pages: list[int]) -> str:
    return f"page {pages[0]} was" if len(pages) == 1 else f"pages {', '.join(map(str, pages))} were"
