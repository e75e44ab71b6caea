"""Writes the generated files, most of them pages of the documentation: `python -m documentation [--check]`.

The prover computes the kill matrix each time, so docs/kill_matrix.md shows what the rules do today.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from seed_search import searched

from kvproof.conformance.fuzz.seeds import SEEDS
from kvproof.conformance.report.formats import run_events
from kvproof.conformance.traces.records import LARGEST_POOL, LONGEST_RECORD
from kvproof.model.explore import Run
from kvproof.model.prove import Proof, prove
from kvproof.spec.faults import FAULTS, KINDS
from kvproof.spec.gaps import GAPS
from kvproof.spec.machine import LEDGER, MACHINES, every_invariant
from kvproof.spec.profiles import PROFILES
from kvproof.spec.trace import RECORD, Config, End, Event, Header, Observed, Producer, Terms

ROOT = Path(__file__).parents[1]


@cache
def proof_with(fault_id: str) -> Proof:
    return prove(FAULTS[fault_id])


def kill_matrix() -> str:
    """Fault x invariant: ✗ where the proof of the deviating action fails; the first run that shows it, step by step."""
    invariants = every_invariant()
    head = ["fault", "deviates", *invariants, "shortest run"]
    lines = [_row(head), _row(["---", "---", *(":-:" for _ in invariants), "---"])]
    for fault in FAULTS.values():
        proof = proof_with(fault.id)
        deviates = ", ".join(f"`{name}`" for name in fault.deviations)
        cells = ["✗" if i in proof.broken else "" for i in invariants]
        lines.append(_row([f"**{fault.id}**", deviates, *cells, _shortest(proof.counterexample)]))
    lines += [
        "",
        f"{len(FAULTS)} deviations, {len(invariants)} invariants. Each deviation breaks at least one invariant, and each "
        "invariant is broken by a deviation.",
    ]
    return _between_marks("\n".join(lines), ROOT / "docs" / "kill_matrix.md")


def _shortest(run: Run | None) -> str:
    if run is None:
        return "none"
    config = "".join(f", {name}" if value is True else f", {name} {value}" for name, value in run.config.items())
    return f"{len(run.steps)} steps, P = {run.page_size}{config}"


def faults_page() -> str:
    """What each deviation did wrong."""
    lines = ["# Deviations", "", "Generated from `spec/faults/`. Each deviation replaces one action.", ""]
    lines += [_row(["id", "kind", "action", "what it does wrong", "needs", "source"]), _row(["---"] * 6)]
    lines += [
        _row([f.id, KINDS[f.kind], ", ".join(f"`{name}`" for name in f.deviations), f.summary, f.needs, f.source])
        for f in FAULTS.values()
    ]
    return "\n".join(lines) + "\n"


def rules_page() -> str:
    """Actions and invariants."""
    lines = [
        "# Rules",
        "",
        "Generated from `spec/`. The action that applies in the model's state checks an event of a trace.",
        "",
    ]
    lines += ["## Actions", "", _row(["action", "event", "rule", "source"]), _row(["---"] * 4)]
    lines += [_row([f"`{a.name}`", f"`{a.event}`", a.summary, a.source]) for m in MACHINES for a in m.actions.values()]
    lines += [
        *_profiles(),
        "",
        "## Invariants",
        "",
        _row(["id", "machine", "statement", "why it matters", "source"]),
        _row(["---"] * 5),
    ]
    for machine in MACHINES:
        stated = machine.invariants.values()
        lines += [_row([i.id, machine.name, i.statement, i.explanation, i.source]) for i in stated]
    lines += ["", "## Auxiliary", "", "Facts that the induction needs. It fails without any one of them.", ""]
    lines += [_row(["id", "statement", "reason"]), _row(["---"] * 3)]
    lines += [_row([i.id, i.statement, i.explanation]) for i in LEDGER.auxiliary.values()]
    return "\n".join(lines) + "\n"


def _profiles() -> Iterator[str]:
    """Rules of releases, and their known deviations."""
    yield from ("", "## Profiles", "")
    yield "Designs of releases. `prove --profile` and `replay --profile` use these rules instead of those above."
    yield ""
    yield _row(["profile", "releases", "action", "its rule", "known deviations"])
    yield _row(["---"] * 5)
    for profile in PROFILES.values():
        releases = " to ".join(dict.fromkeys((profile.releases[0], profile.releases[-1])))
        first = (f"`{profile.name}`", releases, ", ".join(profile.deviations))
        for name, rule in profile.rules.items():
            said = (rule.run.__doc__ or "").strip().splitlines()[0]
            yield _row([first[0], first[1], f"`{name}`", said, first[2]])
            first = ("", "", "")


def trace_page() -> str:
    """The trace format, field by field."""
    lines = [
        "# Trace format",
        "",
        "Generated from `spec/trace.py`; the JSON Schema is `trace.schema.json`. Meaning of each event: `events.md`.",
        "",
        f"Limits: a record has at most {LONGEST_RECORD // 2**20} MiB as a line, a pool at most {LARGEST_POOL:,} pages, and a "
        "length of the configuration at most 2^40 tokens. kvproof refuses larger values before it allocates memory for them.",
        "",
    ]
    for model in (Header, Producer, Config, Event, Observed, Terms, End):
        doc = (model.__doc__ or "").strip().splitlines()
        lines += [f"## {model.__name__}", "", *([doc[0], ""] if doc and "pydantic" not in doc[0] else [])]
        lines += [_row(["field", "type", "meaning"]), _row(["---"] * 3)]
        for name, info in model.model_fields.items():
            kind = (
                str(info.annotation)
                .replace("typing.", "")
                .replace("kvproof.spec.trace.", "")
                .replace("<class '", "")
                .replace("'>", "")
            )
            lines.append(_row([f"`{name}`", f"`{kind}`".replace("|", "or"), info.description or ""]))
        lines.append("")
    lines += ["## Gaps", "", "What `gaps` of a header may say (`spec/gaps.py`):", "", *(f"- {gap}" for gap in GAPS), ""]
    return "\n".join(lines)


def schema() -> str:
    return json.dumps(RECORD.json_schema(), indent=1, sort_keys=True) + "\n"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _between_marks(text: str, path: Path) -> str:
    begin, end = "<!-- kill-matrix:begin -->", "<!-- kill-matrix:end -->"
    before, rest = path.read_text(encoding="utf-8").split(begin)
    return f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}"


GENERATED: dict[str, Callable[[], str]] = {
    "docs/kill_matrix.md": kill_matrix,
    "docs/faults.md": faults_page,
    "docs/rules.md": rules_page,
    "docs/trace.md": trace_page,
    "docs/trace.schema.json": schema,
    "docs/run-events.schema.json": run_events.schema,
    f"conformance/fuzz/{SEEDS}": lambda: searched(lambda fault: proof_with(fault.id).counterexample),
}
"""Every generated file, and the function that makes its text."""


def main(arguments: list[str]) -> int:
    texts = {ROOT / name: made() for name, made in GENERATED.items()}
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if "--check" in arguments:
            print(f"{path.relative_to(ROOT)} is out of date: run make docs", file=sys.stderr)
        else:
            path.write_text(texts[path], encoding="utf-8")
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
