"""SARIF 2.1.0: a result for each thing that is broken. Its rule is the invariant, its place the event of the trace (the line of
the file), or the line of the rule that broke it. GitHub's code scanning shows them beside the code.

What could not be checked is no result but a notification, and then `executionSuccessful` is false.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.printable import for_reading
from kvproof.conformance.report.formats.checks import Check, Problem, checks_of
from kvproof.conformance.report.formats.run_events import Ended, Started
from kvproof.spec.machine import every_invariant

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
OTHER_RULES = {
    "order": "an event comes where no rule of the model allows it, or contradicts the header of its trace",
    "vacuous": "a part of the proof cannot fail, so it proves nothing",
    "effect": "an effect does not keep every page with exactly one owner",
    "helper": "an auxiliary statement that the induction needs is not kept",
    "disputed": "two solvers give opposite answers to one question of the proof",
    "code": "a function of the code under proof does not do what its rule says",
    "target": "a target crashed, hung, failed its own check, or did not return what it took",
    "blind": "a check does not find any more what it must find",
    "golden": "a trace that is kept has another verdict than it must have",
}
NO_VERDICT = (ExitCode.COULD_NOT_RUN, ExitCode.INCONCLUSIVE, ExitCode.INTERRUPTED)


def _notifications(checks: Iterable[Check]) -> Iterator[dict[str, Any]]:
    """What weakens a verdict is a warning, that there is none an error."""
    for check in checks:
        for note in check.notes:
            yield {"level": "warning", "message": _message(f"{check.name}: {note}")}
        if check.open is not None:
            yield {"level": "error", "message": _message(check.open[1])}


def sarif(events: Iterable[Any]) -> str:
    """The whole run as one JSON document, which ends with a line end."""
    told = list(events)
    started = next(event for event in told if isinstance(event, Started))
    ended = next((event for event in told if isinstance(event, Ended)), None)
    checks = list(checks_of(told))
    problems = [problem for check in checks if not check.is_sum for problem in check.problems]
    rules = list(dict.fromkeys(problem.rule for problem in problems))
    code = ExitCode.COULD_NOT_RUN if ended is None else ended.exit_code
    run = {
        "tool": {"driver": _driver(started, rules)},
        "invocations": [
            {
                "executionSuccessful": code not in NO_VERDICT,
                "exitCode": int(code),
                "exitCodeDescription": "" if ended is None else ended.meaning,
                "toolExecutionNotifications": [*_notifications(checks)],
            }
        ],
        "columnKind": "unicodeCodePoints",
        "results": [_result(problem, rules) for problem in problems],
        "properties": {"command": started.command, "arguments": started.arguments, "versions": started.versions},
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _driver(started: Started, rules: list[str]) -> dict[str, Any]:
    said = {**{i.id: i.statement for i in every_invariant().values()}, **OTHER_RULES}
    return {
        "name": "kvproof",
        "semanticVersion": started.versions["kvproof"],
        "rules": [
            {"id": rule, "shortDescription": _message(said[rule]), "defaultConfiguration": {"level": "error"}}
            for rule in rules
        ],
    }


def _result(problem: Problem, rules: list[str]) -> dict[str, Any]:
    location: dict[str, Any] = {}
    if problem.path is not None:
        location["physicalLocation"] = {
            "artifactLocation": _artifact(problem.path),
            **({"region": {"startLine": problem.line}} if problem.line is not None else {}),
        }
    if problem.place:
        location["logicalLocations"] = [{"name": for_reading(problem.place), "kind": problem.kind}]
    same = "\n".join([problem.rule, *(problem.same or (problem.place,))])
    mark = hashlib.sha256(same.encode("utf-8", "replace")).hexdigest()
    return {
        "ruleId": problem.rule,
        "ruleIndex": rules.index(problem.rule),
        "level": "error",
        "message": _message(". ".join(problem.lines)),
        "locations": [location] if location else [],
        "partialFingerprints": {"kvproof/v1": mark[:32]},
        **({"properties": problem.more} if problem.more else {}),
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
