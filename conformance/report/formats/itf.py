"""ITF, the Informal Trace Format of TLA+ and Apalache: one state after each event, for their viewers.

A state of a trace holds every ledger by its session or request, and the owner of every page that is not free. A state of a
counterexample holds the one ledger of the model, ghosts (what really is) included. Lengths are in tokens.
https://apalache-mc.org/docs/adr/015adr-trace.html
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kvproof.conformance.errors import UserError
from kvproof.conformance.printable import for_json
from kvproof.conformance.replay.page_book import FREE
from kvproof.conformance.report.formats.followed import Followed
from kvproof.model.explore import Run
from kvproof.spec.state import FIELD_NAMES, FIELDS, PHASE_NAMES, Ledger

MOST_STATES = 2_000
"""Each state is written whole, and a person looks at them one by one."""
VARIABLES = ("action", "session", "turn", "ledgers", "owners", "free_pages", "broken")
_SORTS = {f.name: f.metadata["sort"] for f in FIELDS}


def itf_of_trace(followed: Followed) -> Iterator[str]:
    """The document in pieces. Raises UserError for a trace with too many events."""
    source = f"trace {followed.reader.path.name}"
    yield _head(source, VARIABLES)
    yield _state(0, {"action": "(before the first event)", "session": "", "turn": "", "broken": {"#set": []}}, followed)
    for index, moment in enumerate(followed.moments(), 1):
        if index > MOST_STATES:
            raise UserError(
                f"{followed.reader.path}: more than {MOST_STATES} events, too many to look at one by one: "
                "cut a part with kvproof slice --from --to, or make it small with kvproof shrink"
            )
        event, broken = moment.event, moment.finding.invariants if moment.finding is not None else {}
        said = {"action": event.action, "session": event.session or "", "turn": event.turn or ""}
        yield ",\n" + _state(index, {**said, "broken": {"#set": list(broken)}}, followed)
    yield "\n]}\n"


def itf_of_run(run: Run) -> str:
    """The shortest run of a refuted rule: the model's ledger before the first step and after each."""
    first = run.steps[0].outcome.before if run.steps else None
    variables = ("action", *FIELD_NAMES)
    states = [_ledger(first)] if first is not None else []
    states += [_ledger(taken.outcome.after) for taken in run.steps]
    actions = ["(nothing)", *(taken.outcome.action.name for taken in run.steps)]
    lines = [
        json.dumps({"#meta": {"index": index}, "action": action, **state})
        for index, (action, state) in enumerate(zip(actions, states, strict=False))
    ]
    source = f"shortest run that breaks {', '.join(run.broken)}; page size {run.page_size}, row width {run.row_width}"
    return _head(source, variables) + ",\n".join(lines) + "\n]}\n"


def _head(source: str, variables: tuple[str, ...]) -> str:
    meta = {"format": "ITF", "format-description": "https://apalache-mc.org/docs/adr/015adr-trace.html"}
    head = {"#meta": {**meta, "source": "kvproof", "description": for_json(source)}, "vars": list(variables)}
    return json.dumps(head)[:-1] + ', "states": [\n'


def _state(index: int, said: dict[str, Any], followed: Followed) -> str:
    book, ledgers = followed.replayer.book, followed.replayer.ledgers
    state = {
        **said,
        "ledgers": _map({key: _ledger(ledger) for key, ledger in ledgers.items()}),
        "owners": {"#map": [[_number(page), owner] for page, owner in sorted(book.owned())]},
        "free_pages": _number(book.count(FREE)),
    }
    return json.dumps(for_json({"#meta": {"index": index}, **{name: state[name] for name in VARIABLES}}))


def _map(values: Mapping[str, Any]) -> dict[str, Any]:
    return {"#map": [[name, value] for name, value in values.items()]}


def _ledger(ledger: Ledger) -> dict[str, Any]:
    return {name: _value(_SORTS[name], getattr(ledger, name)) for name in FIELD_NAMES}


def _value(sort: str, value: Any) -> Any:
    if sort == "flag":
        return bool(value)
    return PHASE_NAMES[value] if sort == "phase" else _number(value)


def _number(value: int) -> dict[str, str]:
    return {"#bigint": str(int(value))}
