"""SGLang's functions, release by release: what the proof of code says of each.

    PYTHONPATH=tools:benchmarks python -m code_releases FOLDER [FOLDER ...] [--page FILE]

FOLDER holds the package `sglang` of a release, as an unpacked wheel does. Each is held against the rules of its own profile.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from measuring import table

from kvproof.conformance.code_proof.findings import Finding, Shown, in_full
from kvproof.conformance.code_proof.proving import Proving
from kvproof.conformance.code_proof.targets import targets_of
from kvproof.model.cache import Store
from kvproof.model.cache_folder import cache_folder
from kvproof.model.code.claims import ABSENT, DIFFERS, NOT_UNDERSTOOD, PROVED

MARKS = {PROVED: "✓", ABSENT: "", NOT_UNDERSTOOD: "?"}
MOST_SENTENCES = 4


@dataclass(frozen=True)
class Release:
    """The findings on one release, in the order of the claims."""

    version: str
    findings: list[Finding]

    def of(self, rule: str) -> Finding | None:
        return next((finding for finding in self.findings if finding.rule == rule), None)

    def count(self, *verdicts: str) -> int:
        return sum(finding.verdict in verdicts for finding in self.findings)

    @property
    def functions(self) -> int:
        """Functions of the release that some path ran."""
        return len({name for finding in self.findings for name in finding.ran})


def release_in(folder: str, store: Store | None) -> Release:
    [target] = targets_of(folder)
    profile = target.profile()
    return Release(target.version or target.label, Proving(target, profile, store).all())


def page(releases: list[Release]) -> str:
    """The releases as Markdown."""
    rules = dict.fromkeys(finding.rule for release in releases for finding in release.findings)
    versions = [release.version for release in releases]
    lines = [
        "<!-- Written by `python -m code_releases`: change that, not this page. -->",
        "",
        "# SGLang's functions, release by release",
        "",
        "What `kvproof prove --code` says of each release, by the rules of its profile. A claim is about one function, or",
        "about one way to call it. ✓: every path does what the rule says, for every page size. ✗: some path does not; a name",
        "behind it is what every path does instead. ?: some path is not understood. Empty: there is no such function.",
        "",
        *table(("claim", *versions), ((f"`{rule}`", *(_mark(r.of(rule)) for r in releases)) for rule in rules)),
        "",
        *table(("", *versions), _totals(releases)),
        "",
        "## What differs",
    ]
    for release in releases:
        lines += ["", f"### {release.version}", "", *_differences(release)]
    return "\n".join(lines) + "\n"


def _totals(releases: list[Release]) -> Iterator[tuple[str, ...]]:
    yield "proved", *(str(release.count(PROVED)) for release in releases)
    yield "not understood", *(str(release.count(NOT_UNDERSTOOD)) for release in releases)
    yield "functions of the release that were run", *(str(release.functions) for release in releases)
    yield "paths understood", *(_understood(release.findings) for release in releases)


def _understood(findings: list[Finding]) -> str:
    return f"{sum(f.understood for f in findings):,} of {sum(f.paths for f in findings):,}"


def _mark(finding: Finding | None) -> str:
    if finding is None:
        return ""
    known = MARKS.get(finding.verdict)
    return known if known is not None else f"✗{f' {finding.instead}' if finding.instead is not None else ''}"


def _differences(release: Release) -> list[str]:
    rows = [
        f"- `{finding.rule}` ({finding.path}:{finding.line}): {in_full(finding)}. {_sentences(finding.differences)}"
        for finding in release.findings
        if finding.verdict == DIFFERS or finding.is_known_fault
    ]
    return rows or ["Nothing."]


def _sentences(differences: tuple[Shown, ...]) -> str:
    shown = [f"Not so: {one.sentence}{_run(one)}." for one in differences[:MOST_SENTENCES]]
    more = len(differences) - MOST_SENTENCES
    return " ".join([*shown, *([f"{more} more."] if more > 0 else [])])


def _run(one: Shown) -> str:
    if not one.schedule:
        return " (not reachable in small instances)"
    return f" (a run of {len(one.schedule)} actions, P = {one.state['P']})"


def main() -> None:
    parser = argparse.ArgumentParser(prog="code_releases", description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--page", type=Path, help="write the page here")
    asked = parser.parse_args()
    releases = []
    for folder in asked.folders:
        releases.append(release_in(folder, Store(cache_folder())))
        last = releases[-1]
        print(
            f"{last.version}: {last.count(PROVED)} of {len(last.findings)} proved, paths {_understood(last.findings)}",
            flush=True,
        )
    if not any(release.findings for release in releases):
        parser.exit(2, "nothing checked: no release has a function that is known\n")
    if asked.page is not None:
        asked.page.write_text(page(releases), encoding="utf-8")


if __name__ == "__main__":
    main()
