"""The events of a run: what `kvproof replay`, `prove`, `fuzz` and `gate` say while they work, in the order in which they say it.

NDJSON is this stream as it is; JUnit and SARIF are folded from it. The first event is `started`, the last `ended`: a stream
without it is that of a run that was killed. Lengths are in tokens, times in seconds. There is no token content in it, nor
anything that a trace's producer wrote freely. `docs/run-events.schema.json` is generated from here.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from kvproof.conformance.printable import for_json

RUN_FORMAT = 1
Verdict = Literal["conforms", "violates", "incomplete"]
Answer = Literal["proved", "broken", "unknown"]
GateVerdict = Literal["passed", "failed", "could not run", "no verdict", "not asked for"]
Whole = Literal["proved", "broken", "unknown", "disputed"]
NOT_REACHED = "not reachable in small instances"
"""Of a difference to which no run leads that `model/code/reached.py` looks at: the claim may start from a state that never is."""
Seconds = Annotated[float, AfterValidator(lambda seconds: round(seconds, 4))]


Event = TypeVar("Event", bound="_Said")


class _Said(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _is_text(cls, data: Any) -> Any:
        """A file name may hold bytes that are no text: they are written as Python would."""
        return for_json(data)

    @classmethod
    def about(cls: type[Event], *told_of: Any, **given: Any) -> Event:
        """The event with the values that are given; each other one is that of the first thing told of that has its name."""
        names = cls.model_fields.keys() - given.keys() - {"event"}
        taken = {name: getattr(one, name) for one in reversed(told_of) for name in names if hasattr(one, name)}
        return cls.model_validate({**taken, **given})


class Started(_Said):
    event: Literal["started"] = "started"
    format: int = RUN_FORMAT
    command: str = Field(description="replay, prove, fuzz or gate")
    arguments: dict[str, Any] = Field(description="what the user gave, by the name of the option")
    versions: dict[str, str] = Field(description="of kvproof, of the specification, of the trace format, of the solver")


class Differs(_Said):
    """A value of an event that is not what the rule says."""

    name: str
    before: Any = Field(description="null: it has no earlier value")
    expected: Any
    seen: Any


class Found(_Said):
    """An event of a trace that the rules do not allow."""

    event: Literal["found"] = "found"
    path: str
    line: int = Field(ge=1, description="of the trace; the header is line 1. In columns: as it would stand in lines")
    seq: int = Field(ge=0)
    action: str = Field(description="the action of the model that judged it")
    ledger: str = Field(description="the session or request that it is about")
    turn: str | None = None
    row: int | None = None
    rule: str
    differences: tuple[Differs, ...] = ()
    pages: tuple[str, ...] = Field(default=(), description="what is wrong with which page, and who owns it")
    invariants: dict[str, str] = Field(
        default={}, description="what it breaks, each in a sentence; the first is the worst"
    )
    explained_by: tuple[str, ...] = Field(default=(), description="faults of the catalogue that do exactly this")
    cause: str = Field(
        default="", description="an event that was left out, or an earlier one, that it probably comes from"
    )
    profile: str | None = Field(default=None, description="the release whose rules judged; null: the model's own")


class Judged(_Said):
    """A trace, after what was found in it."""

    event: Literal["judged"] = "judged"
    path: str
    verdict: Verdict
    why: str = Field(default="", description="why there is no verdict")
    events: int
    page_moves: int
    findings: int
    expected: Verdict | None = Field(default=None, description="of a trace that is kept with the verdict it must have")
    profile: str | None = None
    config: dict[str, Any] = Field(description="of the trace: page size, pages, and what else fixes the arithmetic")
    gaps: tuple[str, ...] = Field(default=(), description="what its recorder could not see")
    allowed_deviations: tuple[str, ...] = Field(
        default=(), description="known of the release: followed where they are met"
    )
    known_deviations: dict[str, int] = Field(default={}, description="met and followed, how often")


class CouldNot(_Said):
    """What was asked for and could not be done."""

    event: Literal["could not"] = "could not"
    what: str = Field(description="a path, or the command")
    why: str


class Covered(_Said):
    """What everything together checked: how often each action, branch of a guard, invariant and field; never is left out."""

    event: Literal["covered"] = "covered"
    actions: dict[str, int]
    guards: dict[str, int]
    invariants: dict[str, int]
    fields: dict[str, int]


class Cell(_Said):
    """An action keeps an invariant, or does not, or the solver gave no answer."""

    event: Literal["cell"] = "cell"
    machine: str
    action: str
    invariant: str
    verdict: Answer
    part: str = Field(default="", description="the sentence that was not shown")
    seconds: Seconds
    path: str | None = Field(default=None, description="of the rule; null: it has none (the initial state)")
    line: int | None = None


class LemmaSaid(_Said):
    """An effect keeps a lemma of page identity."""

    event: Literal["lemma"] = "lemma"
    effect: str
    lemma: str
    verdict: Answer
    seconds: Seconds


class Vacuous(_Said):
    """A part of the proof that could not have failed."""

    event: Literal["vacuous"] = "vacuous"
    what: str


class Step(_Said):
    action: str
    params: dict[str, Any]
    after: dict[str, Any] = Field(description="the values of the ledger that it changed")


class Counterexample(_Said):
    """The shortest run from nothing that breaks an invariant, in small numbers."""

    event: Literal["counterexample"] = "counterexample"
    page_size: int
    row_width: int
    config: dict[str, Any]
    broken: dict[str, str]
    steps: tuple[Step, ...]


class Proved(_Said):
    """A proof as a whole."""

    event: Literal["proof"] = "proof"
    of: str = Field(description="the model's own rules, or the fault, variant or profile that changes them")
    verdict: Whole
    cells: int
    seconds: Seconds
    complete: bool = Field(description="false: it was stopped, and what was not said was not looked at")


class FunctionDiffers(_Said):
    """In which statement a function differs from its rule, with one state that shows it."""

    sentence: str
    code: str = Field(
        description="what the function leaves in that state; empty: the statement is about no single value"
    )
    rule: str
    state: dict[str, int] = Field(description="the ledger before, lengths in tokens; P is the page size")
    schedule: tuple[str, ...] = Field(
        description=f"a run of the rules from nothing whose last action begins in that state; empty: {NOT_REACHED}"
    )


class FunctionProved(_Said):
    """What is said of one function of the code (`prove --code`): it follows its rule on every path, or does not."""

    event: Literal["function"] = "function"
    target: str
    function: str
    rule: str
    verdict: Literal["proved", "differs", "known fault", "not understood", "unknown", "absent"]
    instead: str | None = Field(
        description="the known fault or other design that it follows exactly; null: none, or none is known"
    )
    path: str | None = Field(description="null: the code has no such function")
    line: int | None
    paths: int
    questions: int
    seconds: Seconds
    differences: tuple[FunctionDiffers, ...]
    open: tuple[str, ...] = Field(description="why there is no verdict")


class Troubled(_Said):
    """What a fuzzer found, made small."""

    event: Literal["trouble"] = "trouble"
    number: int
    kind: str
    signature: str
    sentence: str
    faults: tuple[str, ...]
    after: tuple[str, ...] = Field(description="known deviations of the target that were met before")
    times: int
    acts: int
    seconds: Seconds = Field(description="after which it was found first")
    folder: str
    again: str = Field(description="the command that plays it once more")
    path: str = Field(description="in the folder: the trace where there is one, else the report")
    line: int = Field(default=1, description="of that file: the bad event")
    seq: int | None = Field(default=None, description="null: the model did not see it in an event")
    invariants: dict[str, str] = {}


class Fuzzed(_Said):
    """A campaign as a whole."""

    event: Literal["fuzzed"] = "fuzzed"
    target: str
    seed: int
    faults: tuple[str, ...]
    settings: dict[str, Any]
    profile: str | None
    schedules: int
    steps: int
    events: int
    found: int
    seconds: Seconds


class Killed(_Said):
    """A fault of the catalogue, and who found it. null: not looked for, because nothing could see it or play it."""

    event: Literal["killed"] = "killed"
    fault: str
    actions: tuple[str, ...]
    refuted: bool = Field(description="the proof fails with it")
    replayed: bool | None = Field(description="the replay of its counterexample finds it, and names it")
    fuzzed: bool | None = Field(description="the fuzzer names it, with the reference that does it")
    missed_by: tuple[str, ...]


class GateStep(_Said):
    """One line of the gate's table; what it is made of was said before it."""

    event: Literal["gate step"] = "gate step"
    name: str
    verdict: GateVerdict
    detail: str
    seconds: Seconds


class Ended(_Said):
    event: Literal["ended"] = "ended"
    exit_code: int
    meaning: str


RunEvent = Annotated[
    Started
    | Found
    | Judged
    | CouldNot
    | Covered
    | Cell
    | LemmaSaid
    | Vacuous
    | Counterexample
    | Proved
    | FunctionProved
    | Troubled
    | Fuzzed
    | Killed
    | GateStep
    | Ended,
    Field(discriminator="event"),
]
RUN_EVENT: TypeAdapter[Any] = TypeAdapter(RunEvent)


def line_of(event: Any) -> str:
    """One event as a line of NDJSON, with its line end. ASCII only, so that nothing in a name can end the line or hide in it."""
    return json.dumps(event.model_dump(), separators=(",", ":")) + "\n"


def schema() -> str:
    """The JSON Schema of one line."""
    return json.dumps(RUN_EVENT.json_schema(), indent=1, sort_keys=True) + "\n"
