"""SARIF 2.1.0: a result for each thing that is broken. Its rule is the invariant, its place the event of the trace (the line of
the file), or the line of the rule that broke it. GitHub's code scanning shows them beside the code.

What could not be checked is no result but a notification, and then `executionSuccessful` is false.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.printable import for_reading
from kvproof.conformance.report.formats.run_events import (
    Cell,
    CouldNot,
    Ended,
    Found,
    GateStep,
    Judged,
    Killed,
    LemmaSaid,
    Started,
    Troubled,
    Vacuous,
)
from kvproof.conformance.report.formats.sentences import about_cell, headline, rule_of
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import every_invariant

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
OTHER_RULES = {
    "order": "an event comes where no rule of the model allows it",
    "vacuous": "a part of the proof cannot fail, so it proves nothing",
    "effect": "an effect does not keep every page with exactly one owner",
    "helper": "an auxiliary statement that the induction needs is not kept",
    "target": "a target crashed, hung, failed its own check, or did not return what it took",
    "blind": "a check does not find any more what it must find",
}
NO_VERDICT = (ExitCode.COULD_NOT_RUN, ExitCode.INCONCLUSIVE, ExitCode.INTERRUPTED)


@dataclass(frozen=True)
class Result:
    """One thing that is broken. `line`: None where a file has no lines of its own; `place`: where it is, in the model's words."""

    rule: str
    text: str
    path: str | None = None
    line: int | None = None
    place: str = ""
    kind: str = "function"
    same: tuple[str, ...] = ()
    """What two findings have in common that are the same to a person: who tracks them over many runs goes by it."""
    more: dict[str, Any] = field(default_factory=dict)


def sarif(events: Iterable[Any]) -> str:
    """The whole run as one JSON document, which ends with a line end."""
    told = list(events)
    started = next(event for event in told if isinstance(event, Started))
    ended = next((event for event in told if isinstance(event, Ended)), None)
    results = [result for event in told for result in _results(event)]
    rules = list(dict.fromkeys(result.rule for result in results))
    code = ExitCode.COULD_NOT_RUN if ended is None else ended.exit_code
    run = {
        "tool": {"driver": _driver(started, rules)},
        "invocations": [
            {
                "executionSuccessful": code not in NO_VERDICT,
                "exitCode": int(code),
                "exitCodeDescription": "" if ended is None else ended.meaning,
                "toolExecutionNotifications": [_notification(text) for event in told for text in _not_done(event)],
            }
        ],
        "columnKind": "unicodeCodePoints",
        "results": [_result(result, rules) for result in results],
        "properties": {"command": started.command, "arguments": started.arguments, "versions": started.versions},
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _driver(started: Started, rules: list[str]) -> dict[str, Any]:
    invariants = every_invariant()
    said = {**{i.id: i.statement for i in invariants.values()}, **OTHER_RULES}
    return {
        "name": "kvproof",
        "semanticVersion": started.versions["kvproof"],
        "rules": [
            {"id": rule, "shortDescription": _message(said.get(rule, rule)), "defaultConfiguration": {"level": "error"}}
            for rule in rules
        ],
    }


def _results(event: Any) -> Iterator[Result]:
    if type(event) in _RESULTS:
        yield from _RESULTS[type(event)](event)


def _of_finding(found: Found) -> Iterator[Result]:
    why = [f"{FAULTS[name].id}: {FAULTS[name].summary}" for name in found.explained_by]
    text = ". ".join([headline(found), f"Rule: {found.rule}", *found.invariants.values(), *why])
    yield Result(
        rule_of(found.invariants, found.explained_by),
        text,
        found.path,
        found.line,
        f"event {found.seq}: {found.action}",
        "element",
        (found.action, *found.invariants, *found.explained_by),
        {"invariants": list(found.invariants), "explained_by": list(found.explained_by), "seq": found.seq},
    )


def _of_cell(cell: Cell) -> Iterator[Result]:
    if cell.verdict == "broken":
        rule = cell.invariant if cell.invariant in every_invariant() else "helper"
        place = f"{cell.machine}.{cell.action}"
        yield Result(rule, about_cell(cell), cell.path, cell.line, place, same=(cell.action, cell.invariant))


def _of_lemma(lemma: LemmaSaid) -> Iterator[Result]:
    if lemma.verdict == "broken":
        yield Result("effect", f"{lemma.effect} does not keep {lemma.lemma}", place=lemma.effect, same=(lemma.effect,))


def _of_trouble(trouble: Troubled) -> Iterator[Result]:
    in_trace = trouble.seq is not None
    yield Result(
        rule_of(trouble.invariants, trouble.faults) if in_trace else "target",
        f"{trouble.signature}: {trouble.sentence}. Again: {trouble.again}",
        trouble.path,
        trouble.line,
        f"event {trouble.seq}" if in_trace else trouble.kind,
        "element",
        (trouble.signature,),
        {"faults": list(trouble.faults), "times": trouble.times},
    )


def _of_kill(kill: Killed) -> Iterator[Result]:
    if kill.missed_by:
        text = f"{kill.fault} ({FAULTS[kill.fault].summary}) is not found by {' nor '.join(kill.missed_by)}"
        yield Result("blind", text, place=kill.fault, same=(kill.fault, *kill.missed_by))


def _of_trace(judged: Judged) -> Iterator[Result]:
    """A trace that is kept because it must violate, and does not any more."""
    if judged.expected == "violates" != judged.verdict:
        text = f"{judged.path}: {judged.verdict}; it must be: violates"
        yield Result("blind", text, judged.path, 1, same=(judged.path,))


_RESULTS: dict[type, Callable[[Any], Iterator[Result]]] = {
    Found: _of_finding,
    Cell: _of_cell,
    LemmaSaid: _of_lemma,
    Vacuous: lambda v: iter([Result("vacuous", v.what, place=v.what, same=(v.what,))]),
    Troubled: _of_trouble,
    Killed: _of_kill,
    Judged: _of_trace,
}


def _not_done(event: Any) -> Iterator[str]:
    if isinstance(event, CouldNot):
        yield event.why
    elif isinstance(event, Judged) and event.verdict == "incomplete" != event.expected:
        yield f"{event.path}: {event.why}"
    elif isinstance(event, Cell | LemmaSaid) and event.verdict == "unknown":
        yield about_cell(event) if isinstance(event, Cell) else f"{event.effect} / {event.lemma}: no answer"
    elif isinstance(event, GateStep) and event.verdict in ("could not run", "no verdict"):
        yield f"{event.name}: {event.detail}"


def _notification(text: str) -> dict[str, Any]:
    return {"level": "error", "message": _message(text)}


def _result(result: Result, rules: list[str]) -> dict[str, Any]:
    location: dict[str, Any] = {}
    if result.path is not None:
        location["physicalLocation"] = {
            "artifactLocation": _artifact(result.path),
            **({"region": {"startLine": result.line}} if result.line is not None else {}),
        }
    if result.place:
        location["logicalLocations"] = [{"name": for_reading(result.place), "kind": result.kind}]
    mark = hashlib.sha256("\n".join([result.rule, *result.same]).encode("utf-8", "replace")).hexdigest()
    return {
        "ruleId": result.rule,
        "ruleIndex": rules.index(result.rule),
        "level": "error",
        "message": _message(result.text),
        "locations": [location] if location else [],
        "partialFingerprints": {"kvproof/v1": mark[:32]},
        **({"properties": result.more} if result.more else {}),
    }


def _artifact(path: str) -> dict[str, str]:
    """A path below the working directory stays relative, as GitHub wants it."""
    given = Path(path)
    if given.is_absolute():
        try:
            given = given.relative_to(Path.cwd())
        except ValueError:
            return {"uri": given.as_uri()}
    return {"uri": quote(given.as_posix()), "uriBaseId": "%SRCROOT%"}


def _message(text: str) -> dict[str, str]:
    """Braces are doubled, as a message wants them; `[a](b)`, which would be a link, is pulled apart."""
    plain = for_reading(text).replace("{", "{{").replace("}", "}}")
    return {"text": plain.replace("](", "] (")}
