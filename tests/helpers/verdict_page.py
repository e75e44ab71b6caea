"""The table of verdicts in a page of the docs: between two marks, written by a script and compared by a test."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repository import DOCS

END = "<!-- end -->"

Verdicts = dict[str, dict[str, dict[str, str]]]
"""release or commit -> scenario -> page size -> words"""


@dataclass(frozen=True)
class VerdictPage:
    name: str
    mark: str

    @property
    def path(self) -> Path:
        return DOCS / self.name

    def read(self) -> str:
        """The table as it stands there."""
        return self.path.read_text().partition(self.mark)[2].partition(END)[0].strip()

    def write(self, table: str) -> None:
        page = self.path.read_text()
        before, _, behind = page.partition(self.mark)
        after = behind.partition(END)[2]
        self.path.write_text(f"{before}{self.mark}\n\n{table}\n\n{END}{after}")


def markdown(columns: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    """One row for each scenario."""
    lines = [f"| scenario | {' | '.join(columns)} |", f"| --- |{' --- |' * len(columns)}"]
    return "\n".join([*lines, *(f"| `{scenario}` | {' | '.join(cells)} |" for scenario, cells in rows)])


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n")
