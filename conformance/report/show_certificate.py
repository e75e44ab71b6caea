"""What a second solver said, for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from kvproof.model.certify import Certificate
from kvproof.model.questions import POSSIBLE

# What a verdict means for the question whether the assumptions have a model.
POSSIBLE_WORDS = {"proved": "satisfiable", "broken": "contradictory", "unknown": "unknown"}


def certificate_lines(certificate: Certificate) -> Iterator[Text]:
    first, second = certificate.solvers
    asked, disputed = len(certificate.opinions), certificate.disputed
    yield Text(
        f"{first} and {second} agree on {asked - len(disputed)} of {asked} questions "
        f"({second} from the SMT-LIB text, {certificate.seconds:.1f} s)",
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
