"""Options of `replay`, `prove`, `fuzz` and `gate`: what they say, in the formats of other people's tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

JUnitFile = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write the verdicts as JUnit XML (docs/formats.md).")
]
SarifFile = Annotated[
    Path | None, typer.Option("--sarif", metavar="FILE", help="Write what is broken as SARIF 2.1.0, for code scanning.")
]
NdjsonFile = Annotated[
    Path | None,
    typer.Option("--ndjson", metavar="FILE", help="Write every event of the run, one JSON object a line."),
]
