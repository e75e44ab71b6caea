"""A proof of code for people (a table, paths as annotated source) and machines (JSON)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from kvproof.conformance.code_proof.findings import Finding, Shown, word_of
from kvproof.conformance.errors import at
from kvproof.conformance.replay.ledger_words import value
from kvproof.conformance.report.formats.run_events import NOT_REACHED
from kvproof.model.code.claims import ABSENT, DIFFERS, PROVED

STYLES = {PROVED: "green", DIFFERS: "bold red", ABSENT: "dim"}
MOST_LINES = 16
"""Of a path, from its end: lines that ask or set a number or a flag. JSON has all lines."""


Place = Callable[[str], str]
"""From a path of the tree to the path of the file."""


@dataclass(frozen=True)
class Told:
    """One target: what people call it, whose rules it must follow, where its files are, what was found."""

    label: str
    rules: str
    place: Place
    findings: Sequence[Finding]


def table(findings: Iterable[Finding], place: Place) -> Table:
    """A row for each function."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, justify in (
        ("verdict", "left"),
        ("function", "left"),
        ("rule", "left"),
        ("paths", "right"),
        ("s", "right"),
    ):
        shown.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    shown.add_column("at", no_wrap=True)
    for f in findings:
        where = at(place(f.path), f.line) if f.path is not None else ""
        verdict = Text(word_of(f), STYLES.get(f.verdict, "bold yellow"))
        shown.add_row(verdict, f.function, f.rule, str(f.paths), f"{f.seconds:.1f}", where)
    return shown


def summary(findings: Sequence[Finding]) -> str:
    """How much was looked at: claims, functions, paths."""
    there = [finding for finding in findings if finding.verdict != ABSENT]
    followed = {function for f in there if f.verdict == PROVED or f.instead is not None for function in f.ran}
    ran, paths = {function for f in there for function in f.ran}, sum(f.paths for f in there)
    understood = sum(f.understood for f in there)
    return (
        f"{len(there)} claims; {len(ran)} functions of the code ran, {len(followed)} of them where each path follows a rule; "
        f"{understood} of {paths} paths understood"
    )


def explanations(findings: Iterable[Finding], place: Place) -> Iterator[Text]:
    """Why a function is not proved: each difference with a path in numbers, and what is not understood."""
    for finding in findings:
        if finding.differences or finding.open:
            yield Text(f"{finding.function} ({finding.rule}), {at(place(finding.path or ''), finding.line)}", "bold")
        if finding.instead is not None:
            yield Text(f"  every path does exactly what this says: {finding.instead}")
        if not finding.is_known_fault:
            yield from _differences(finding.differences, place)
        for reason in finding.open:
            yield Text(f"  not understood: {reason}", "yellow")


def _differences(differences: Sequence[Shown], place: Place) -> Iterator[Text]:
    """What is not so; of the first statement also the run to the state, the state, and the path that the code takes in it."""
    for shown in differences:
        yield Text.assemble(
            ("  not so: ", "red"), shown.sentence, ("" if shown.schedule else f" ({NOT_REACHED})", "bold red")
        )
    for shown in differences[:1]:
        yield from _schedule(shown)
        values = f": the code leaves {shown.code}, the rule {shown.rule}" if shown.code or shown.rule else ""
        yield Text(f"  the first of them in the state {state_in_words(shown.state)}{values}")
        lines = [line for line in shown.lines if line.notes][-MOST_LINES:]
        yield Text(f"  the path asks and sets, {'at last' if len(lines) == MOST_LINES else 'from its begin'}:")
        path = None
        for line in lines:
            if line.path != path:
                path = line.path
                yield Text(f"    {place(path)}", "dim")
            yield Text.assemble(f"    {line.line:6}  {line.text}", (f"    # {'; '.join(line.notes)}", "cyan"))


def _schedule(shown: Shown) -> Iterator[Text]:
    """The run that leads to the difference, or that none was found."""
    if not shown.schedule:
        yield Text(f"  {NOT_REACHED}: perhaps the difference starts from a state that is never reached", "bold red")
        return
    yield Text("  a run of the rules from nothing leads to it; the code does the last action otherwise:")
    for number, call in enumerate(shown.schedule, start=1):
        is_last = number == len(shown.schedule)
        yield Text.assemble(
            (f"    {number:3} ", "dim"),
            (str(call), "bold red" if is_last else "bold"),
            (f"  {'the rule: ' if is_last else ''}{'; '.join(call.changed)}", "dim"),
        )


def state_in_words(state: Mapping[str, int]) -> str:
    """The page size first; of the other numbers those that are not nothing."""
    others = {name: number for name, number in state.items() if name != "P" and number}
    return ", ".join(f"{name} = {value(name, number)}" for name, number in {"P": state.get("P"), **others}.items())


def verdict_of(findings: Sequence[Finding]) -> str:
    """The verdict on all: `differs`, `nothing`, `open` or `proved`."""
    words = {finding.verdict for finding in findings} - {ABSENT}
    if not words:
        return "nothing"
    if DIFFERS in words:
        return "differs"
    return "proved" if all(f.verdict in (PROVED, ABSENT) or f.is_known_fault for f in findings) else "open"


def change_table(before: Sequence[Finding], after: Sequence[Finding]) -> Table:
    """What a change did to each function."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("change", "function", "before", "after"):
        shown.add_column(name, no_wrap=True)
    earlier = {finding.rule: finding for finding in before}
    for rule in dict.fromkeys([*(f.rule for f in after), *earlier]):
        old, new = earlier.get(rule), next((f for f in after if f.rule == rule), None)
        words = [word_of(f) if f is not None else ABSENT for f in (old, new)]
        style = "bold red" if newly_differs(old, new) else ""
        function = next(f.function for f in (new, old) if f is not None)
        shown.add_row(Text(change_of(old, new), style), function, *words)
    return shown


def newly_differs(old: Finding | None, new: Finding | None) -> bool:
    return new is not None and new.verdict == DIFFERS and (old is None or old.verdict != DIFFERS)


def change_of(old: Finding | None, new: Finding | None) -> str:
    """In one word or two what became of a function's verdict."""
    words = [f.verdict if f is not None else ABSENT for f in (old, new)]
    if words == [DIFFERS, DIFFERS] and old is not None and new is not None:
        said = [{d.sentence for d in f.differences} for f in (old, new)]
        return f"{DIFFERS} before and after" if said[0] == said[1] else f"{DIFFERS} in another way"
    if words[0] == words[1]:
        return f"{words[0]} before and after"
    return f"newly {words[1]}"


def as_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    return [asdict(finding) for finding in findings]
