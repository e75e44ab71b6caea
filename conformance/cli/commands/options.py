"""Options that several commands have: help text and completion of each, once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kvproof.conformance.cli import completions


def checker_option(help: str) -> Any:
    """`--checker`: the choices are the same everywhere; `help` says what they mean for the command."""
    return typer.Option(metavar="auto|compiled|interpreted", help=help, autocompletion=completions.CHECKERS)


def profile_option(help: str) -> Any:
    """`--profile`: a release, or the one that the trace or target names."""
    return typer.Option("--profile", metavar="NAME|auto", help=help, autocompletion=completions.profiles_and_auto)


def fault_option(help: str, metavar: str | None = None) -> Any:
    return typer.Option("--fault", metavar=metavar, help=help, autocompletion=completions.faults)


FaultsTurnedOn = Annotated[
    list[str] | None, fault_option("Turn a known fault on (reference only, repeatable): see `kvproof list faults`.")
]
Strict = Annotated[bool, typer.Option("--strict", help="Count known deviations of a release as violations.")]
JudgedBy = Annotated[
    str | None,
    profile_option("Use the rules of a release (kvproof list profiles); auto: of the release that the trace names."),
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
        "--cache", metavar="DIR", help="Folder for kept answers. Default: KVPROOF_CACHE, or the user's cache folder."
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray", metavar="ADDRESS", help="Spread the work over a Ray cluster (kvproof\\[ray]); local: start one here."
    ),
]
JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON.")]
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
