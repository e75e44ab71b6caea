"""What an invariant, a fault or an action is: its sentence, why it is there, its source, and the shortest run as a picture."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace

from rich.text import Text

from kvproof.conformance.errors import UserError, unknown
from kvproof.conformance.report.explain.runs import pictured_run, shortest_run_of_fault
from kvproof.model.integers import Integers
from kvproof.spec.actions import Action
from kvproof.spec.effects import apply_effects
from kvproof.spec.faults import FAULTS, KINDS, Fault
from kvproof.spec.invariants import Invariant
from kvproof.spec.machine import LEDGER, MACHINES, Machine, every_invariant, machine_of
from kvproof.spec.profiles import PROFILES

LABEL = 10
Searching = Callable[[], None]


def rule_names() -> list[str]:
    """Invariants, auxiliary ones, faults and actions: no name is of two kinds."""
    return [*every_invariant(), *LEDGER.auxiliary, *FAULTS, *_actions()]


def is_name(what: str) -> bool:
    return _as_spelt(what) in rule_names()


def unknown_subject(what: str) -> UserError:
    """Neither a file nor a name."""
    if "/" in what or what.endswith((".jsonl", ".gz", ".kvtrace")):
        return UserError(f"{what}: no such trace, and no folder of a finding")
    return unknown("trace, invariant, fault or action", what, rule_names())


def rule_lines(name: str, searching: Searching = lambda: None) -> Iterator[Text]:
    """All about one of `rule_names`, whatever its case. `searching` is called before a search that may take seconds."""
    spelt = _as_spelt(name)
    if spelt in FAULTS:
        yield from _fault_lines(FAULTS[spelt], searching)
    elif spelt in _actions():
        yield from _action_lines(_actions()[spelt])
    else:
        yield from _invariant_lines(spelt, searching)


def _as_spelt(name: str) -> str:
    return {known.casefold(): known for known in rule_names()}.get(name.casefold(), name)


def _actions() -> dict[str, Action]:
    return {name: action for machine in MACHINES for name, action in machine.actions.items()}


def _line(label: str, text: str) -> Text:
    return Text(f"  {label:<{LABEL}}", "dim") + Text(text, "not dim")


# -- faults --


def _fault_lines(fault: Fault, searching: Searching) -> Iterator[Text]:
    yield Text(fault.id, "bold red") + Text(f"  {fault.summary}", "bold not red")
    yield _line("kind", KINDS[fault.kind])
    for name in fault.deviations:
        yield _line("in", f"{name}: {fault.machine.actions[name].summary}")
    if fault.needs:
        yield _line("needs", fault.needs)
    for invariant in fault.breaks:
        stated = fault.machine.invariants.get(invariant) or every_invariant()[invariant]
        yield _line("breaks", f"{invariant} {stated.statement}")
    if fault.source:
        yield _line("source", fault.source)
    if followers := [p.name for p in PROFILES.values() if fault.id in p.deviations]:
        yield _line("known of", ", ".join(followers))
    yield from _run_of(fault, searching)
    yield Text("")
    yield _command("prove that it breaks", f"kvproof prove --fault {fault.id} --out {fault.id}.jsonl")
    yield _command("its run as a page", f"kvproof explain {fault.id}.jsonl --html {fault.id}.html")


def _command(what: str, line: str) -> Text:
    return Text(f"  {what + ':':<22}", "dim") + Text(line, "not dim")


def _run_of(fault: Fault, searching: Searching) -> Iterator[Text]:
    searching()
    run = shortest_run_of_fault(fault)
    yield Text("")
    if run is None:
        yield Text("  no run of the small instances shows it", "dim")
    else:
        yield from (Text("  ") + line for line in pictured_run(fault, run))


# -- invariants --


def _invariant_lines(name: str, searching: Searching) -> Iterator[Text]:
    stated = [(m, m.all_invariants[name]) for m in MACHINES if name in m.all_invariants]
    yield Text(name, "bold cyan") + Text(f"  {stated[0][1].statement}", "bold not cyan")
    for machine, invariant in stated:
        yield from _stated(machine, invariant, is_first=invariant is stated[0][1])
    if name in LEDGER.auxiliary:
        yield _line("", "auxiliary: nobody asked for it, but induction needs it")
    breaking = sorted(
        (f for f in FAULTS.values() if name in f.breaks), key=lambda f: (f.kind == "mutation", f.breaks[0] != name)
    )
    for fault in breaking:
        yield _line("broken by", f"{fault.id} ({', '.join(fault.deviations)}) {fault.summary}")
    if breaking:
        yield Text("")
        yield Text("  How it breaks, with ") + Text(breaking[0].id, "bold red")
        yield from _run_of(breaking[0], searching)
        yield Text("")
        yield _command("that fault", f"kvproof explain {breaking[0].id}")
    yield _command("prove that it holds", "kvproof prove")


def _stated(machine: Machine, invariant: Invariant, *, is_first: bool) -> Iterator[Text]:
    yield _line("of", f"{machine.name}: {machine.summary}")
    if not is_first:
        yield _line("", invariant.statement)
    yield _line("why", invariant.explanation)
    if invariant.source:
        yield _line("source", invariant.source)


# -- actions --


def _action_lines(action: Action) -> Iterator[Text]:
    machine = machine_of(action.name)
    yield Text(action.name, "bold cyan") + Text(f"  {action.summary}", "bold not cyan")
    yield _line("of", f"{machine.name}: {machine.summary}")
    yield _line("event", action.event)
    if action.params:
        yield _line("takes", ", ".join(f"{name} ({sort})" for name, sort in action.params.items()))
    guards, conditions = _demands(action, machine)
    for guard in guards:
        yield _line("only if", guard)
    for invariant, sentence in conditions:
        yield _line("keeps", f"{invariant} {sentence}")
    if action.source:
        yield _line("source", action.source)
    for profile in PROFILES.values():
        if action.name in profile.rules:
            said = (profile.rules[action.name].run.__doc__ or "").strip().splitlines()
            yield _line("otherwise", f"in {profile.name}: {said[0] if said else 'a rule of its own'}")
    for fault in FAULTS.values():
        if action.name in fault.deviations:
            yield _line("fault", f"{fault.id} {fault.summary}")


def _demands(action: Action, machine: Machine) -> tuple[list[str], list[tuple[str, str]]]:
    """The sentences of an action's guards, and of the side conditions of its effects: those do not depend on a state."""
    d = Integers(1, 1)
    nothing = {name: False if sort == "flag" else 0 for name, sort in action.params.items()}
    step = action.run(d, machine.start(d), SimpleNamespace(**nothing))
    _, conditions = apply_effects(d, step.after, step.effects)
    guards = list(dict.fromkeys(guard.sentence for guard in step.guards))
    return guards, list(dict.fromkeys((c.invariant, c.sentence) for c in conditions))
