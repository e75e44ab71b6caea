"""Drives an implementation along a trace: it is made to do what the trace says, and must show what the trace shows.

A replay asks whether a trace follows the rules. A drive asks whether an implementation follows a trace: a counterexample of
the model against the implementation with that fault on (the same outcome) and without it (another one, at the event that
deviates).

For each event the scheduler of the reference has to do this very thing next (`impl/hand_driven_scheduler.py`); what it did
comes back as events of its own. What it does of itself beside that (go on with a detached turn, carry out a deferred close) has
to come next in the trace too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvproof.conformance.adapters.reference import require_faults, require_torch
from kvproof.conformance.drive.legal_choices import LegalChoices
from kvproof.conformance.drive.renaming import Renaming
from kvproof.conformance.drive.token_plan import MOST_TOKENS, TokenPlan, TooManyTokens
from kvproof.conformance.errors import UserError, at
from kvproof.conformance.replay.judge import Difference
from kvproof.conformance.replay.passes import ASKS_ABORT
from kvproof.conformance.traces.json_lines import TraceReader
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.impl.config import ConfigError, EngineConfig
from kvproof.spec.trace import FINISHED, STOPPED, Event

if TYPE_CHECKING:
    from kvproof.impl.hand_driven_scheduler import HandDrivenScheduler
    from kvproof.impl.observe import Event as Done

SAME, DIVERGES = "same", "otherwise"
"""Verdicts as the JSON report spells them; on the terminal the second one is DIVERGES."""


class CannotDrive(UserError):
    """The implementation has no way to do what the event says: drive a trace without it."""


@dataclass(frozen=True)
class Divergence:
    """The first event where the implementation did something else. `seen` is None where it did nothing, or broke."""

    line: int
    expected: Event | None
    seen: Event | None
    differences: tuple[Difference, ...]
    why: str = ""


@dataclass(frozen=True)
class DriveReport:
    path: Path
    faults: tuple[str, ...]
    events: int
    """How many events of the trace were done and compared."""
    seen: tuple[Event, ...]
    """The implementation's own trace."""
    first: Divergence | None
    why_incomplete: str = ""
    """The trace does not show its run to the end."""

    @property
    def verdict(self) -> str:
        return SAME if self.first is None else DIVERGES


OnEvents = Callable[[int], None]


def drive(path: str | Path, *, faults: Sequence[str] = (), progress: OnEvents = lambda _: None) -> DriveReport:
    """Drive the reference implementation along a trace, up to the first event where it diverges."""
    require_torch()
    require_faults(faults)
    reader = read_trace(path)
    # That an abort was asked for is nothing to do: the abort itself is another event.
    events = ((line, record) for line, record in reader if isinstance(record, Event))
    lines = [(line, event) for line, event in events if event.action != ASKS_ABORT]
    if not lines:
        raise UserError(f"{at(path)}: nothing to drive: the trace has no events")
    config = engine_config(reader, faults)
    try:
        driver = Driver(config, [event for _, event in lines], LegalChoices(reader))
    except TooManyTokens as error:
        raise UserError(f"{at(path)}: {error.message}") from error
    for number, (line, event) in enumerate(lines):
        try:
            first = driver.follow(number, line)
        except CannotDrive as error:
            raise CannotDrive(
                f"{at(path, line)}: event {event.seq}: the reference cannot be driven to this {event.action}: {error.message}"
            ) from error
        progress(number + 1)
        if first is not None:
            return DriveReport(Path(path), tuple(faults), number + 1, tuple(driver.seen), first)
    why = _why_incomplete(reader)
    rest = None if why else driver.left_over(lines[-1][0])
    return DriveReport(Path(path), tuple(faults), len(lines), tuple(driver.seen), rest, why)


def _why_incomplete(reader: TraceReader) -> str:
    if reader.end is None:
        return reader.broken_off or "it breaks off: there is no terminal record"
    if reader.end.dropped:
        return f"its recorder dropped {reader.end.dropped} events"
    return "" if reader.end.reason in (FINISHED, STOPPED) else f"the run ended early: {reader.end.reason}"


def engine_config(reader: TraceReader, faults: Sequence[str]) -> EngineConfig:
    """The engine of the trace's sizes and of its way to schedule.

    In the model an input may fill a whole row; the reference keeps one position more, and what its rounds may overshoot.
    """
    config = reader.header.config
    try:
        return EngineConfig(
            page_size=config.page_size,
            pool_pages=config.pool_pages,
            rows=config.rows,
            row_width=config.row_width + 1 + 2 * (config.drafts + 1) * (config.speculation > 0),
            chunked_prefill_size=config.page_size,  # nobody asks for its budget: it says that prompts may be cut
            overlap=config.overlap,
            speculation=config.speculation,
            drafts=config.drafts,
            window=config.window,
            window_pages=config.window_pages or None,
            radix_cache=config.tree,
            forward="none",
            faults=tuple(faults),
        )
    except ConfigError as error:
        raise UserError(f"{at(reader.path, 1)}: {error}") from error


class Driver:
    """One drive: the implementation, what of its own doing the trace has yet to show, and the names of pages."""

    def __init__(self, config: EngineConfig, events: Sequence[Event], choices: LegalChoices) -> None:
        from kvproof.impl.hand_driven_scheduler import HandDrivenScheduler

        self.seen: list[Event] = []
        self._events = events
        self._pending: deque[Event] = deque()
        self._renaming = Renaming()
        self._tokens = TokenPlan(events, config.page_size)
        self._output_len: dict[str, int] = {}
        self._choices = choices
        self._scheduler = HandDrivenScheduler(config, self)

    def on_event(self, event: Done) -> None:
        """What the implementation did, in the words of a trace."""
        seen = Event.model_validate({"seq": len(self.seen), **asdict(event)})
        self.seen.append(seen)
        self._pending.append(seen)

    def follow(self, number: int, line: int) -> Divergence | None:
        """Have one event of the trace done, unless the implementation did it of itself, and compare."""
        from kvproof.impl.hand_driven_scheduler import CannotBeDone

        expected = self._events[number]
        if not self._pending:
            try:
                self._do(self._next_act(number))
            except CannotDrive:
                raise
            except CannotBeDone as error:
                raise CannotDrive(str(error)) from error
            except Exception as error:  # with a fault on, the implementation may break anywhere
                return Divergence(line, expected, None, (), f"it broke: {type(error).__name__}: {error}")
        if not self._pending:
            return Divergence(line, expected, None, (), "it did nothing")
        self._choices.passed(expected)
        seen = self._pending.popleft()
        differences = self._renaming.differences(expected, seen)
        if _is_about_the_tree(expected, seen, differences):
            held = "; ".join(f"{d.name} {d.seen}, not {d.expected}" for d in differences)
            raise CannotDrive(
                f"the tree holds other tokens ({held}); a trace has none, and those chosen for it do not fit"
            )
        return Divergence(line, expected, seen, tuple(differences)) if differences else None

    def left_over(self, line: int) -> Divergence | None:
        """What the implementation did of itself although the trace is at its end."""
        return Divergence(line, None, self._pending[0], ()) if self._pending else None

    def _next_act(self, number: int) -> Event:
        """An eviction is no act of its own: it makes room for what comes next."""
        return next((e for e in self._events[number:] if e.action != "evict"), self._events[number])

    def _do(self, event: Event) -> None:
        """Tell the scheduler to do what the event says."""
        hand = self._scheduler
        match event.action, event.session, event.turn:
            case "open", str(session), _:
                hand.open_session(session)
            case "create", str(session), str(turn):
                hand.create_turn(
                    session,
                    turn,
                    self._tokens.input_of(turn),
                    too_long=bool(event.params.get("too_long")),
                    logprob=bool(event.params.get("logprob")),
                )
            case "close", str(session), _:
                hand.close_session(session)
            case "check", _, _:
                hand.check()
            case _, _, str(turn):
                self._do_for_turn(hand, event, turn)
            case _:
                raise CannotDrive("it does not say of which turn or session")

    def _do_for_turn(self, hand: HandDrivenScheduler, event: Event, turn: str) -> None:
        match event.action:
            case "arrive":
                hand.arrive(turn, self._tokens.input_of(turn))
            case "match":
                hand.match(turn)
            case "extend":
                hand.prefill(turn, int(event.params.get("seq_len") or 0))
            case "stash":
                hand.keep_chunk(turn)
            case "insert":
                hand.insert(turn)
            case "decode":
                hand.decode(turn, self._reservation(event))
            case "result":
                hand.result(turn, self._output(event, turn))
            case "verify":
                hand.verify(turn, self._output(event, turn))
            case "window":
                hand.evict_window(turn, int(event.params.get("pre_len") or 0))
            case "finish":
                self._end(hand, event, turn)
            case "retract":
                hand.retract(turn)
            case "abort":
                hand.abort(turn)
            case _:
                raise CannotDrive("it has no such step")

    def _reservation(self, event: Event) -> int | None:
        """How far ahead the trace reserves; None, the implementation's own choice, where the rules refuse that of the trace."""
        largest = self._scheduler.config.row_width
        is_refused = self._choices.refused(event, "allocated_len", range(largest, -1, -1))
        return None if is_refused else event.after.kv_allocated_len

    def _output(self, event: Event, turn: str) -> list[int]:
        """The tokens of a result. What comes too late is nobody's."""
        refused = self._choices.refused(event, "tokens", range(1, self._scheduler.config.drafts + 2))
        if refused is not None:
            raise CannotDrive(f"no round gives so many tokens, {event.params.get('tokens')}: {refused.sentence}")
        count, position = int(event.params.get("tokens") or 0), self._output_len.get(turn, 0)
        if event.after.output_len is not None:
            self._output_len[turn] = event.after.output_len
        return [self._tokens.output_of(turn, position + n) for n in range(min(count, MOST_TOKENS))]

    def _end(self, hand: HandDrivenScheduler, event: Event, turn: str) -> None:
        if event.params.get("inserted") is False and hand.config.radix_cache:
            raise CannotDrive("it always inserts an ordinary request that ends into the tree")
        kept = event.params.get("finished_len")
        hand.end(turn, None if kept is None else int(kept))


def _is_about_the_tree(expected: Event, seen: Event, differences: Sequence[Difference]) -> bool:
    """What the tree holds is the environment's choice: to find something else there is no rule's doing."""
    names = {d.name for d in differences}
    asked_the_tree = expected.action == "match" and not expected.after.lent and not seen.after.lent
    return "dup_len" in names or bool(asked_the_tree and names and names <= {"prefix_len", "cache_protected_len"})
