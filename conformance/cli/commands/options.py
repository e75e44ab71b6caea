"""Options that several commands have: help text and completion of each, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from kvproof.conformance.cli import completions
from kvproof.conformance.errors import UserError


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
Code = Annotated[
    str | None,
    typer.Option(
        "--code",
        metavar="TARGET",
        help="Prove SGLang's own functions: `installed`, a folder, REPO@COMMIT, or what REPO@A..B changed.",
    ),
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
JUnitFile = Annotated[
    Path | None, typer.Option("--junit", metavar="FILE", help="Write the verdicts as JUnit XML (docs/reports.md).")
]
SarifFile = Annotated[
    Path | None, typer.Option("--sarif", metavar="FILE", help="Write what is broken as SARIF 2.1.0, for code scanning.")
]
NdjsonFile = Annotated[
    Path | None,
    typer.Option("--ndjson", metavar="FILE", help="Write every event of the run, one JSON object a line."),
]


Setting = int | float | bool | str | None


def parse_settings(pairs: list[str]) -> dict[str, Setting]:
    """`rows=4` -> {"rows": 4}. Values are read as JSON where they are, else as text; a later one wins."""
    settings: dict[str, Setting] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise UserError(f"--set {pair!r}: expected KEY=VALUE, for example --set rows=4")
        settings[key] = _parse_value(value)
    return settings


def _parse_value(text: str) -> Setting:
    try:
        value: Any = json.loads(text)
    except ValueError:
        return text
    return value if value is None or isinstance(value, int | float | bool | str) else text
