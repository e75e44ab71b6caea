"""Options that several commands have: each is worded, and completed, once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kvproof.conformance.cli import completions


def checker_option(help: str) -> Any:
    """`--checker`: what may be chosen is the same everywhere, what it means for the command is said by `help`."""
    return typer.Option(metavar="auto|compiled|interpreted", help=help, autocompletion=completions.CHECKERS)


def profile_option(help: str) -> Any:
    """`--profile`: a release, or the one that the trace or target names."""
    return typer.Option("--profile", metavar="NAME|auto", help=help, autocompletion=completions.profiles_and_auto)


def fault_option(help: str, metavar: str | None = None) -> Any:
    return typer.Option("--fault", metavar=metavar, help=help, autocompletion=completions.faults)


FaultsTurnedOn = Annotated[
    list[str] | None, fault_option("Turn a known fault on (reference only, repeatable): see `kvproof list faults`.")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Count deviations that a release is known to have as violations.")
]
JudgedBy = Annotated[
    str | None,
    profile_option("Judge by the rules of a release (kvproof list profiles); auto: of the one that the trace names."),
]
FuzzTarget = Annotated[
    str,
    typer.Option(
        "--target",
        help="What to fuzz: reference, sglang, or module:factory of your own.",
        autocompletion=completions.of(["reference", "sglang"]),
    ),
]
CacheFolder = Annotated[
    Path | None,
    typer.Option(
        "--cache", metavar="DIR", help="Where answers are kept, else KVPROOF_CACHE or the user's cache folder."
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray", metavar="ADDRESS", help="Spread the work over a Ray cluster (kvproof\\[ray]); local: one made here."
    ),
]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result for machines.")]
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
