"""A variant's verdict beside the built-in rules', for people and machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from kvproof.conformance.report.show_proof import MARKS, NEVER_REACHED, failures, run_lines
from kvproof.model.variant import Comparison
from kvproof.spec.machine import LEDGER


def variant_lines(comparison: Comparison) -> Iterator[Text]:
    """What is replaced, what changed its verdict, and the shortest run if there is one."""
    variant, proof = comparison.variant, comparison.proof
    yield Text(variant.name + (f": {variant.summary}" if variant.summary else ""), "bold")
    for name in variant.replaced:
        yield Text(f"replaces: {name} ({LEDGER.actions[name].summary})")
    yield from change_lines(comparison)
    vacuous = [f"vacuous: {what}" for what in proof.vacuous]
    for line in failures(proof) if not comparison.changes else vacuous:
        yield Text(line, "red")
    if proof.counterexample is not None:
        yield from run_lines(proof.counterexample)
    elif proof.broken:
        yield Text(NEVER_REACHED, "yellow")
    kept = len(proof.obligations) - sum(o.verdict != "proved" for o in proof.obligations)
    yield Text(
        f"{kept} of {len(proof.obligations)} cells proved ({proof.seconds:.1f} s): "
        f"{len(variant.replaced)} actions replaced, {len(variant.actions) - len(variant.replaced)} as they were"
    )


def change_lines(comparison: Comparison) -> Iterator[Text]:
    """By invariant: the verdict with the built-in rules, the verdict with these, and where it fails."""
    if not comparison.changes:
        yield Text("no invariant changed its verdict against the built-in rules")
        return
    yield Text("changed against the built-in rules:")
    for invariant in LEDGER.all_invariants:
        for change in (c for c in comparison.changes if c.invariant == invariant):
            mark, style = MARKS[change.variant]
            helper = " (X: what the induction needs; the rule may be safe and the helper too narrow)"
            yield Text(f"  {mark} {invariant:4}", style) + Text(
                f"{change.built_in} → {change.variant}, by {change.action}: {change.sentence}"
                + (helper if invariant in LEDGER.auxiliary else "")
            )


def as_json(comparison: Comparison) -> dict[str, Any]:
    """What the JSON of a proof holds beside the proof itself."""
    return {
        "variant": {
            "file": comparison.variant.name,
            "summary": comparison.variant.summary,
            "replaces": list(comparison.variant.replaced),
            "changes": [vars(change) for change in comparison.changes],
        }
    }
