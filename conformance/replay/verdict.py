"""What a replay says of a trace: the verdict, what is wrong, and how much was checked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

from kvproof.conformance.replay.coverage import Coverage
from kvproof.conformance.replay.judge import Difference
from kvproof.conformance.replay.kept_types import Counts, KeptEvent, KeptFault, KeptLedger, Line, Text, WholeNumber
from kvproof.conformance.replay.wrong_pages import WrongPage
from kvproof.spec.patience import Patience
from kvproof.spec.trace import Config

CONFORMS, VIOLATES, INCOMPLETE = "conforms", "violates", "incomplete"
Sentences = Annotated[dict[Text, Text], BeforeValidator(dict), PlainSerializer(lambda said: list(said.items()))]
"""Kept as pairs: what a checkpoint holds is sorted by key, and these have an order."""


@dataclass(frozen=True)
class Finding:
    """One event that the rules do not allow."""

    path: Path
    line: Line
    event: KeptEvent
    ledger: Text
    action: Text
    rule: Text
    before: KeptLedger | None = None
    differences: tuple[Difference, ...] = ()
    pages: tuple[Text, ...] = ()
    invariants: Sentences = field(default_factory=dict)
    explained_by: tuple[KeptFault, ...] = ()
    profile: Text | None = None
    """The release whose rules it was judged by; None: the model's own."""
    cause: Text = ""
    """An earlier event, or one that the trace leaves out, that this one is probably the consequence of."""
    wrong: tuple[WrongPage, ...] = ()
    """The pages of the full pool that moved wrongly, each with who had it and who has it now."""


@dataclass
class Report:
    """What a replay found: verdict, findings, and how much was checked."""

    path: Path
    config: Config
    verdict: Text = INCOMPLETE
    why: Text = ""
    findings: list[Finding] = field(default_factory=list)
    followed: Counts = field(default_factory=Counter)
    coverage: Coverage = field(default_factory=Coverage)
    events: WholeNumber = 0
    pages_moved: WholeNumber = 0
    passes: WholeNumber = 0
    """Of the scheduler, as far as the trace shows them."""
    patience: Patience = field(default_factory=Patience)
    """For how many of them something may stand still that can go on."""
    gaps: tuple[Text, ...] = ()
    allowed: tuple[Text, ...] = ()
    """Known deviations that are followed where they are met."""
    profile: Text | None = None
    """The release whose rules it was judged by; None: the model's own."""
    hint: Text = ""
    """What a user may want to ask for instead."""

    @property
    def actions(self) -> Counter[str]:
        """How often each action was judged."""
        return self.coverage.actions

    @property
    def is_over(self) -> bool:
        """Whether a finding ended the replay: after one of a memory check it continues."""
        return bool(self.findings) and self.findings[-1].action != "check"

    @property
    def first(self) -> Finding | None:
        return self.findings[0] if self.findings else None
