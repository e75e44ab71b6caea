"""A proof, its counterexample, what a variant changes and what a second solver says, for people (text) and machines (JSON)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from kvproof.conformance.replay.ledger_words import action_in_words, changes
from kvproof.conformance.report.certificate_folder import CertificateFolder, Manifest
from kvproof.conformance.report.check_certificate import MANIFEST
from kvproof.conformance.report.formats.of_proof import events_of_proof
from kvproof.conformance.report.formats.run_events import Cell, LemmaSaid
from kvproof.conformance.report.show_effects import all_in_words
from kvproof.model.certify import Certificate
from kvproof.model.composed import SHARED_PREFIX
from kvproof.model.explore import Run, Taken
from kvproof.model.integers import Integers
from kvproof.model.liveness import LIVENESS
from kvproof.model.page_lemmas import EFFECTS, J_STATEMENTS, Lemma
from kvproof.model.prove import Obligation, Proof
from kvproof.model.questions import POSSIBLE, PROVED
from kvproof.model.variant import Comparison, InductiveState
from kvproof.spec.faults import Fault
from kvproof.spec.machine import LEDGER, MACHINES, Machine, every_invariant

MARKS = {"proved": ("✓", "green"), "broken": ("✗", "bold red"), "unknown": ("?", "bold yellow")}
NEVER_REACHED = "no run of the small instances shows it: perhaps it starts from a state that is never reached"
SCOPE = (
    "page sizes: every P >= 1; sessions, rows and pool pages: unbounded; "
    "every configuration of overlap, speculation v1 and v2, drafts, window, tree or chunk cache"
)

# What a verdict means for the question whether the assumptions have a model.
POSSIBLE_WORDS = {"proved": "satisfiable", "broken": "contradictory", "unknown": "unknown"}

SAID_OF = {
    LIVENESS: "liveness: every turn, and every close that waits, can end, for every P >= 1",
    SHARED_PREFIX: "tree: what a row shares is in the tree, and locked whenever pages are taken, for every order of steps",
}
"""What is printed of lemmas that are not of an effect, once all of them are proved."""


def matrix(proof: Proof, machine: Machine) -> Table:
    """action x invariant of one machine, with the solver's time of each action."""
    cells: dict[str, dict[str, Obligation]] = {}
    for o in proof.obligations:
        if o.machine == machine.name:
            cells.setdefault(o.action, {})[o.invariant] = o
    return _table("action" if machine.name == "ledger" else machine.name, machine.all_invariants, cells)


def effects_table(proof: Proof) -> Table:
    """effect x page-identity lemma."""
    cells = {effect: {lemma.goal: lemma for lemma in proof.lemmas if lemma.effect == effect} for effect in EFFECTS}
    return _table("effect", J_STATEMENTS, cells)


def _table(
    corner: str, columns: Iterable[str], cells: Mapping[str, Mapping[str, Obligation] | Mapping[str, Lemma]]
) -> Table:
    names = list(columns)
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(corner, no_wrap=True)
    for name in names:
        table.add_column(name, justify="center", no_wrap=True)
    table.add_column("ms", justify="right")
    for row, of_row in cells.items():
        marks = [Text(*MARKS[of_row[name].verdict]) if name in of_row else Text("·", "dim") for name in names]
        table.add_row(row, *marks, f"{1000 * sum(cell.seconds for cell in of_row.values()):.0f}")
    return table


def summary(proof: Proof) -> list[str]:
    """The verdict in words, with its bounds."""
    goals = sum(o.goals for o in proof.obligations) + len(proof.lemmas)
    auxiliary = sum(len(m.auxiliary) for m in MACHINES)
    lines = [
        f"{_proved_cells(proof)} of {len(proof.obligations)} cells proved ({goals} goals, {proof.seconds:.1f} s): "
        f"{len(every_invariant())} invariants, {auxiliary} auxiliary (X: what induction needed)",
        SCOPE,
    ]
    for group, said in SAID_OF.items():
        verdicts = {lemma.verdict for lemma in proof.lemmas if lemma.effect == group}
        if verdicts == {PROVED}:
            lines.append(said)
    if proof.reachable:
        states = sum(r.states for r in proof.reachable)
        sizes = ", ".join(dict.fromkeys(f"P={r.page_size} row width {r.row_width}" for r in proof.reachable))
        lines.append(
            f"witness: all {states:,} states of {len(proof.reachable)} small instances ({sizes}); "
            f"each of {len(proof.reachable[0].taken)} ledger actions happens, every turn can end"
        )
    return lines


def _proved_cells(proof: Proof) -> int:
    return sum(o.verdict == "proved" for o in proof.obligations)


def failures(proof: Proof) -> list[str]:
    """Which part of which cell was not shown."""
    lines = [f"{o.action} breaks {o.invariant}: {o.sentence}" for o in proof.obligations if o.verdict == "broken"]
    lines += [
        f"{o.action} / {o.invariant}: no answer within the time limit"
        for o in proof.obligations
        if o.verdict == "unknown"
    ]
    lines += [f"{m.effect} / {m.goal}: {m.verdict}" for m in proof.lemmas if m.verdict != "proved"]
    return lines + [f"vacuous: {what}" for what in proof.vacuous]


def fault_lines(fault: Fault, proof: Proof) -> Iterator[Text]:
    """What a fault deviates from, what it does not keep in arbitrary states, and the shortest run that shows it."""
    yield Text(f"{fault.id} ({fault.source}): {fault.summary}", "bold")
    for name in fault.deviations:
        yield Text(f"deviates from: {name} ({fault.machine.actions[name].summary})")
    own = [i for i in proof.broken if i in every_invariant()]  # auxiliary ones where it is only those
    yield Text(f"by induction it breaks {', '.join(own or proof.broken)} (every P >= 1, {proof.seconds:.1f} s)")
    if proof.counterexample is None:
        yield Text(NEVER_REACHED, "yellow")
    else:
        yield from run_lines(proof.counterexample)


def run_lines(run: Run) -> list[Text]:
    """A counterexample as numbered states: the action's name, only what changed, and what its effects were."""
    d = Integers(run.page_size, run.row_width)
    lines = [Text(f"shortest run: {instance_in_words(run)}, from nothing", "dim")]
    for number, taken in enumerate(run.steps, start=1):
        last = number == len(run.steps)
        seen, *truth = [*changes(taken.outcome.before, taken.outcome.after), ""]
        lines.append(
            Text(f"{number:3} ", "dim") + Text(call_in_words(taken), "bold red" if last else "bold") + Text(f"  {seen}")
        )
        effects = all_in_words(taken.outcome.effects, d)
        below = "; ".join(part for part in (effects, *truth) if part)
        if below:
            lines.append(Text(f"      {below}", "red" if last else "dim"))
    for invariant, sentence in run.broken.items():
        lines.append(Text(f"  ✗ {invariant} ", "bold red") + Text(sentence))
    return lines


def instance_in_words(run: Run) -> str:
    """The smallest instance that shows it: page size 1, row width 6, window 1, overlap"""
    where = "".join(f", {name} {value}" for name, value in run.config.items() if value is not True)
    where += "".join(f", {name}" for name, value in run.config.items() if value is True)
    return f"page size {run.page_size}, row width {run.row_width}{where}"


def call_in_words(taken: Taken) -> str:
    return action_in_words(taken.outcome.action.name, taken.params)


def variant_lines(comparison: Comparison) -> Iterator[Text]:
    """What is replaced, what changed its verdict, and the shortest run if there is one."""
    variant, proof = comparison.variant, comparison.proof
    yield Text(variant.name + (f": {variant.summary}" if variant.summary else ""), "bold")
    for name in variant.replaced:
        yield Text(f"replaces: {name} ({LEDGER.actions[name].summary})")
    for helper in variant.helpers.values():
        kind = "replaces the helper" if helper.id in LEDGER.auxiliary else "helper"
        yield Text(f"{kind} {helper.id}: {helper.statement}")
    yield from _change_lines(comparison)
    vacuous = [f"vacuous: {what}" for what in proof.vacuous]
    for line in failures(proof) if not comparison.changes else vacuous:
        yield Text(line, "red")
    if proof.counterexample is not None:
        yield from run_lines(proof.counterexample)
    for state in proof.states:
        yield from _inductive_lines(state)
    if proof.searched:
        yield Text(f"no run shows it; searched: {proof.searched}", "yellow")
    for advice in what_to_try(proof.states, variant.machine):
        yield Text(advice, "yellow")
    yield Text(
        f"{_proved_cells(proof)} of {len(proof.obligations)} cells proved ({proof.seconds:.1f} s): "
        f"{len(variant.replaced)} actions replaced, {len(variant.actions) - len(variant.replaced)} as they were"
    )


def what_to_try(states: Sequence[InductiveState], machine: Machine) -> Iterator[str]:
    """For a maintainer whose rule is right, though the induction fails from these states."""
    if not states:
        return
    failed = {state.invariant for state in states}
    yield "what to try, if your rule is right (docs/proving.md, helpers):"
    if narrow := [name for name in machine.auxiliary if name in failed]:
        name = narrow[0]
        yield f'  {name} may be too narrow for it: state what holds with your rule in HELPERS = {{"{name}": ...}}'
    if failed - set(machine.auxiliary):
        name = f"X{1 + max(int(name[1:]) for name in machine.auxiliary)}"
        yield f'  no run may lead to the state: say why in HELPERS = {{"{name}": ...}}, which is then proved, too'


def _inductive_lines(state: InductiveState) -> Iterator[Text]:
    """A step that the induction fails at, and the state before it."""
    d, outcome = state.d, state.taken.outcome
    yield Text(f"{state.invariant} fails after {call_in_words(state.taken)}, from a state that may never be reached:")
    config = ", ".join(
        f"{name} {value}" for name, value in vars(d).items() if name not in ("zero", "one", "true", "false")
    )
    yield Text(f"  {config}", "dim")
    yield Text(f"  {'; '.join(changes(LEDGER.start(d), outcome.before))}", "dim")
    yield Text(f"  after it: {'; '.join(changes(outcome.before, outcome.after)) or 'the same'}", "dim")
    yield Text(f"  ✗ {state.invariant} ", "bold red") + Text(state.sentence)


def inductive_json(state: InductiveState) -> dict[str, Any]:
    outcome = state.taken.outcome
    step = {"action": outcome.action.name, "params": state.taken.params}
    broken = {"invariant": state.invariant, "sentence": state.sentence}
    return {**broken, **step, "config": vars(state.d), "before": vars(outcome.before), "after": vars(outcome.after)}


def _change_lines(comparison: Comparison) -> Iterator[Text]:
    """By invariant: the verdict with the built-in rules, the verdict with these, and where it fails."""
    if not comparison.changes:
        yield Text("no invariant changed its verdict against the built-in rules")
        return
    yield Text("changed against the built-in rules:")
    for invariant in comparison.variant.machine.all_invariants:
        for change in (c for c in comparison.changes if c.invariant == invariant):
            mark, style = MARKS[change.variant]
            helper = " (X: what the induction needs; the rule may be safe and the helper too narrow)"
            yield Text(f"  {mark} {invariant:4}", style) + Text(
                f"{change.built_in} → {change.variant}, by {change.action}: {change.sentence}"
                + (helper if invariant in LEDGER.auxiliary else "")
            )


def certificate_lines(certificate: Certificate) -> Iterator[Text]:
    first, second = certificate.solvers
    asked, disputed = len(certificate.opinions), certificate.disputed
    yield Text(
        f"{first} and {second} agree on {asked - len(disputed)} of {asked} questions "
        f"(each from its SMT-LIB text, {certificate.seconds:.1f} s by {second})",
        "red" if disputed or not asked else "",
    )
    for o in disputed:
        words = POSSIBLE_WORDS if o.label == POSSIBLE else {}
        said = f"{first}: {words.get(o.z3, o.z3)}, {second}: {words.get(o.cvc5, o.cvc5)}"
        yield Text(f"{o.question}, {o.label[0]}, '{o.label[1]}': {said}", "red")
    for error in certificate.errors:
        yield Text(error, "red")
    if certificate.confirmed:
        yield Text(f"{certificate.confirmed} counterexamples evaluated by the oracle: each fails as said")
    for what in certificate.refuted:
        yield Text(f"the oracle does not see this counterexample: {what}", "red")
    word, style = {
        "agree": ("CERTIFIED", "bold green"),
        "disagree": ("NOT CERTIFIED: the solvers, or a solver and the oracle, disagree", "bold red"),
        "unknown": ("NOT CERTIFIED: a solver gave no answer", "bold yellow"),
    }[certificate.verdict]
    yield Text(word, style)


def manifest_lines(manifest: Manifest, folder: CertificateFolder) -> Iterator[Text]:
    """What a folder holds, what nobody checked, and the digest to publish with it."""
    style = "red" if manifest.covered < manifest.asked else ""
    yield Text(f"{folder.folder}: {manifest.covered} of {manifest.asked} questions covered by both solvers", style)
    holes = f", {manifest.proofs_with_holes} WITH HOLES" if manifest.proofs_with_holes else ", none with holes"
    yield Text(f"{manifest.proofs} proofs by cvc5{holes}; not checked by a third tool", "yellow")
    yield Text(f"not covered: {', '.join(manifest.not_covered)} ({MANIFEST} says why)")
    yield Text(f"sha256 of {MANIFEST}: {folder.digest()}")


def as_json(proof: Proof) -> dict[str, Any]:
    said, run = list(events_of_proof(proof)), proof.counterexample
    return {
        "verdict": proof.verdict,
        "fault": proof.fault.id if proof.fault else None,
        "scope": {"page_sizes": "every P >= 1", "sessions": "unbounded", "pool": "unbounded"},
        "seconds": round(proof.seconds, 3),
        "broken": list(proof.broken),
        "obligations": [cell.model_dump(exclude={"event", "path", "line"}) for cell in said if isinstance(cell, Cell)],
        "effects": [lemma.model_dump(exclude={"event"}) for lemma in said if isinstance(lemma, LemmaSaid)],
        "vacuous": proof.vacuous,
        "reachable": [vars(r) for r in proof.reachable],
        "counterexample": run
        and {
            "page_size": run.page_size,
            "row_width": run.row_width,
            "broken": run.broken,
            "steps": [
                {"action": t.outcome.action.name, "params": t.params, "after": vars(t.outcome.after)} for t in run.steps
            ],
        },
    }
