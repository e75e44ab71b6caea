"""Shows bugs of SGLang's history: each on a release that has it, and that the next release has it no more.

    make history BUG=22862          # a pull request or issue of SGLang, a fault of kvproof, or a finding
    make history BUG=all            # each of them

With `--write` what is as the table says is written into docs/history.md, row by row.
Exits with 0 if each bug is there and gone as the table says, with 1 if one is not, with 2 if nothing has the name.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bugs_of_sglang import BUGS, Bug, Function, Scenario, Schedule, Script
from install_apart import install, site_of
from make_env import ROOT, make
from make_env import SITES as KNOWN_SITES
from run_findings import answers_on
from sglang_process import RECORD_SCENARIOS, called_on, run_on
from verdict_page import VerdictPage

from kvproof.conformance.code_proof.findings import Finding
from kvproof.conformance.code_proof.proving import Proving
from kvproof.conformance.code_proof.targets import targets_of
from kvproof.conformance.replay.finding_words import in_one_sentence
from kvproof.conformance.replay.replay import replay
from kvproof.conformance.replay.rules_of_trace import OF_THE_TRACE
from kvproof.model.cache import Store
from kvproof.model.cache_folder import cache_folder
from kvproof.model.code.claims import ABSENT, NOT_UNDERSTOOD, UNKNOWN

TABLE = VerdictPage("history.md", "<!-- bugs: written by make history BUG=all HISTORY=--write -->")
THERE, GONE = "there", "not there"
PAGE_SIZE = 4


class NotShownError(Exception):
    """Neither there nor gone: it could not be asked."""


@dataclass(frozen=True)
class Seen:
    """What was seen on one release."""

    release: str
    is_there: bool
    said: str
    seconds: float


@dataclass(frozen=True)
class Shown:
    bug: Bug
    seen: tuple[Seen, ...]

    @property
    def is_as_said(self) -> bool:
        there, *gone = (seen.is_there for seen in self.seen)
        return there and not any(gone)


def shown(bug: Bug) -> Shown:
    """The bug on its release, and on the one in which it is gone."""
    releases = (bug.there, *([bug.gone] if bug.gone else []))
    return Shown(bug, tuple(_timed(bug, release) for release in releases))


def _timed(bug: Bug, release: str) -> Seen:
    begin = time.perf_counter()
    is_there, said = _is_there(bug, release)
    return Seen(release, is_there, said, time.perf_counter() - begin)


def _is_there(bug: Bug, release: str) -> tuple[bool, str]:
    match bug.shown_by:
        case Scenario():
            return _by_scenario(release, bug.shown_by)
        case Schedule():
            return _by_schedule(release, bug.shown_by)
        case Script(name, statement):
            return _by_script(release, name, statement)
        case Function(rule, statement):
            return _by_function(release, rule, statement)


@cache
def _by_scenario(release: str, scenario: Scenario) -> tuple[bool, str]:
    name, settings = scenario.name, (part for setting in scenario.settings for part in ("--set", setting))
    with tempfile.TemporaryDirectory() as folder:
        try:
            run_on(site_of(release), RECORD_SCENARIOS, "sglang", folder, name, "--page-size", str(PAGE_SIZE), *settings)
        except AssertionError as error:
            raise NotShownError(f"scenario {name} on SGLang {release}: {error}") from error
        report = replay(Path(folder, release, f"{name}-p{PAGE_SIZE}.jsonl"))
    first = report.first
    if first is None:
        return False, f"the trace {report.verdict}"
    faults = [explains.id for explains in first.explained_by]
    if scenario.fault in faults or (scenario.rule and first.rule.startswith(scenario.rule)):
        return True, in_one_sentence(first)
    return False, f"the trace shows another bug ({', '.join(faults) or f'no known fault, at {first.action}'})"


def _by_schedule(release: str, schedule: Schedule) -> tuple[bool, str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "captured.jsonl")
        try:
            called_on(site_of(release), schedule.function, path)
        except AssertionError as error:
            raise NotShownError(f"{schedule.function} on SGLang {release}: {error}") from error
        report = replay(path, profile=OF_THE_TRACE)
    first = report.first
    if first is None:
        return False, f"the trace {report.verdict}"
    if schedule.finds in in_one_sentence(first):
        return True, in_one_sentence(first)
    return False, f"the trace shows another bug: {in_one_sentence(first)}"


def _by_script(release: str, name: str, statement: str) -> tuple[bool, str]:
    found = _answers(release, name)
    if statement not in found:
        raise NotShownError(f"docs/findings/{name}.py did not say on SGLang {release} whether {statement}")
    return found[statement], statement if found[statement] else ""


@cache
def _answers(release: str, name: str) -> dict[str, bool]:
    return answers_on(site_of(release), name)


def _by_function(release: str, rule: str, statement: str) -> tuple[bool, str]:
    finding = _proof(release, rule)
    where = f"{finding.path}:{finding.line}: {finding.function}"
    if any(one.sentence == statement for one in finding.differences):
        return True, f"{where}: not so: {statement}"
    if finding.open or finding.verdict in (ABSENT, NOT_UNDERSTOOD, UNKNOWN):
        raise NotShownError(f"{rule} of SGLang {release}: {finding.verdict}")
    return False, f"{where}: {finding.verdict}"


@cache
def _proof(release: str, rule: str) -> Finding:
    [target] = targets_of(str(site_of(release)))
    found = Proving(target, target.profile(), Store(cache_folder()), runs=False).all(wanted=lambda name: name == rule)
    if not found:
        raise NotShownError(f"SGLang {release} has no function for {rule}")
    return found[0]


# --- what people see ------------------------------------------------------------------------------------------------


def lines_of(shown: Shown) -> Iterable[str]:
    bug = shown.bug
    known_as = "".join(f" #{number}" for number in bug.numbers)
    yield f"{bug.name}{known_as}, {bug.layer}: {bug.what}"
    for seen in shown.seen:
        word = THERE if seen.is_there else GONE
        yield f"  SGLang {seen.release}: {word} ({seen.seconds:.0f} s)" + (f": {seen.said}" if seen.said else "")
    if not shown.is_as_said:
        yield f"  NOT AS THE TABLE SAYS: there in {bug.there}, gone in {bug.gone or 'no release'}"


def rows_of(page: str) -> dict[str, str]:
    """The rows of the page: what a bug is and how it is shown -> how long that took, and on which commit."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return {what: " | ".join(ran) for what, *ran in (line.strip("| ").rsplit(" | ", 2) for line in lines[2:])}


def row_of(bug: Bug) -> str:
    upstream = ", ".join(f"#{number}" for number in bug.numbers)
    name = f"[{bug.name}](findings/{bug.name}.md)" if isinstance(bug.shown_by, Script) else bug.name
    command = f"`make history BUG={bug.name}`"
    return " | ".join((name, upstream, bug.layer, bug.what, bug.there, bug.gone or "in no release", command))


def table(rows: Mapping[str, str]) -> str:
    """Of each bug that was run: `rows`, as `rows_of` gives them. What a row says of a bug that is none any more is left out."""
    lines = [
        "| bug | SGLang | layer | what happens | there | gone | show it | seconds | last run on |",
        f"|{' --- |' * 9}",
    ]
    lines += [f"| {row} | {rows[row]} |" for row in map(row_of, BUGS) if row in rows]
    return "\n".join(lines)


def with_run(page: str, found: Iterable[Shown], commit: str) -> str:
    """The table of the page, with what was found now."""
    rows = rows_of(page)
    for one in found:
        rows[row_of(one.bug)] = f"{sum(seen.seconds for seen in one.seen):.0f} | {commit}"
    return table(rows)


def _commit() -> str:
    told = subprocess.run(
        ["git", "-C", str(ROOT), "log", "-1", "--format=%h, %cs"], capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bug", help="a number of SGLang's, a fault, a finding, or all")
    parser.add_argument("--write", action="store_true", help="write the rows of docs/history.md")
    asked = parser.parse_args()
    name = asked.bug
    wanted = [bug for bug in BUGS if name == "all" or bug.is_called(name)]
    if not wanted:
        names = ", ".join(dict.fromkeys(called for bug in BUGS for called in (*map(str, bug.numbers), bug.name)))
        print(f"error: no bug is called {name!r}; valid: all, {names}", file=sys.stderr)
        return 2
    releases = dict.fromkeys(release for bug in wanted for release in (bug.there, bug.gone) if release)
    make(None, tuple(release for release in releases if release in KNOWN_SITES))
    try:
        for release in releases.keys() - KNOWN_SITES.keys():
            install(release)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    found = []
    for bug in wanted:
        try:
            found.append(shown(bug))
        except NotShownError as error:
            print(f"error: {bug.name}: {error}", file=sys.stderr)
            return 2
        print("\n".join(lines_of(found[-1])), flush=True)
    if not all(one.is_as_said for one in found):
        return 1
    if asked.write:
        TABLE.write(with_run(TABLE.read(), found, _commit()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
