"""Runs of the command line with every format asked for, and the validators of other people that judge the files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
from command_line import run
from lxml import etree
from repository import ROOT

from kvproof.conformance.report.formats import run_events

SCHEMAS = ROOT / "tests" / "conformance" / "report" / "formats" / "schemas"
SARIF_SCHEMA = json.loads((SCHEMAS / "sarif-schema-2.1.0.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Reports:
    exit_code: int
    output: str
    junit: Path
    sarif: Path
    ndjson: Path

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ndjson.read_text(encoding="utf-8").splitlines()]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [said for said in self.events if said["event"] == event]

    @property
    def run(self) -> dict[str, Any]:
        """The only run of the SARIF file."""
        (run,) = json.loads(self.sarif.read_text(encoding="utf-8"))["runs"]
        return run

    @property
    def results(self) -> list[dict[str, Any]]:
        return self.run["results"]

    @property
    def cases(self) -> list[etree._Element]:
        return etree.parse(str(self.junit)).findall(".//testcase")

    def all_valid(self) -> None:
        valid_junit(self.junit)
        valid_sarif(self.sarif)
        valid_ndjson(self.ndjson)


def reported(folder: Path, *arguments: object) -> Reports:
    files = {name: folder / f"report.{name}" for name in ("junit", "sarif", "ndjson")}
    result = run(*arguments, *(part for name, path in files.items() for part in (f"--{name}", path)))
    return Reports(result.exit_code, result.output, **files)


def valid_junit(path: Path) -> None:
    etree.XMLSchema(etree.parse(str(SCHEMAS / "junit-10.xsd"))).assertValid(etree.parse(str(path)))


def valid_sarif(path: Path) -> None:
    jsonschema.validate(json.loads(path.read_text(encoding="utf-8")), SARIF_SCHEMA)


def valid_ndjson(path: Path) -> None:
    lines = path.read_text(encoding="ascii").split("\n")
    assert lines.pop() == ""
    validator = jsonschema.Draft202012Validator(json.loads(run_events.schema()))
    for line in lines:
        validator.validate(json.loads(line))
