"""The verdict of each scenario on each release in a few words, and beside it what SGLang's own memory checks said.

    PYTHONPATH=tests python tests/conformance/adapters/sglang/sglang_verdicts.py TRACES CHECKS --write

writes `verdicts.json` (by the model's own rules), `verdicts_by_profile.json` (by those of each release) and `own_checks.json`,
which the tests compare with, and the table in `docs/sglang.md`. TRACES holds a
folder of traces per release, CHECKS a file `<release>.json` per release, as `tools/record_scenarios.py` and
`tools/sglang_own_checks.py` write them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from verdict_page import VerdictPage, Verdicts, markdown, write_json

from kvproof.conformance.adapters.sglang.releases import RELEASES
from kvproof.conformance.replay.replay import CONFORMS, INCOMPLETE, replay
from kvproof.conformance.replay.replayer import STANDSTILL
from kvproof.conformance.replay.rules_of_trace import OF_THE_TRACE
from kvproof.spec.profiles import profile_of

VERDICTS = Path(__file__).with_name("verdicts.json")
BY_PROFILE = Path(__file__).with_name("verdicts_by_profile.json")
OWN_CHECKS = Path(__file__).with_name("own_checks.json")
PAGE = VerdictPage(
    "sglang.md", "<!-- what is found by whom: written by tests/conformance/adapters/sglang/sglang_verdicts.py -->"
)


def verdict_of(trace: Path, profile: str | None = None) -> str:
    report = replay(trace, profile=profile)
    if report.verdict == CONFORMS:
        return "conforms" if not report.followed else f"conforms, {' '.join(sorted(report.followed))} followed"
    if report.verdict == INCOMPLETE:
        return "incomplete"
    first = report.first
    faults = [fault.id for fault in first.explained_by]
    what = STANDSTILL if first.action == STANDSTILL else first.event.action
    return f"violates: {faults[0] if faults else what}"


def verdicts_of(traces: Path, profile: str | None = None) -> Verdicts:
    """By the model's own rules, or of each release that has a profile by its own."""
    found: Verdicts = {}
    for known in RELEASES:
        if profile is not None and profile_of(f"sglang {known.version}") is None:
            continue
        of_release = found.setdefault(known.version, {})
        for trace in sorted((traces / known.version).glob("*-p*.jsonl")):
            scenario, _, page_size = trace.stem.rpartition("-p")
            of_release.setdefault(scenario, {})[page_size] = verdict_of(trace, profile)
    return found


def noticed_in(checks: Path) -> Verdicts:
    files = {known.version: checks / f"{known.version}.json" for known in RELEASES}
    return {release: json.loads(file.read_text()) for release, file in files.items() if file.exists()}


def table(verdicts: Verdicts, by_profile: Verdicts, noticed: Verdicts, page_size: str = "1") -> str:
    """Markdown: per scenario and release what SGLang's checks noticed / what the replay found. Dash: nothing.

    The last column is of the newest release again, by its own rules.
    """
    releases = [release for release in verdicts if release in noticed]
    newest = releases[-1]
    scenarios = sorted({scenario for release in releases for scenario in verdicts[release]})

    def cell(release: str, scenario: str) -> str:
        if scenario not in verdicts[release]:
            return "cannot run"
        own = noticed[release].get(scenario, {}).get(page_size, "")
        return f"{own or '-'} / {_in_short(verdicts[release].get(scenario, {}).get(page_size, ''))}"

    def row(scenario: str) -> list[str]:
        by_its_own = _in_short(by_profile[newest].get(scenario, {}).get(page_size, ""))
        return [*(cell(release, scenario) for release in releases), by_its_own]

    columns = [*releases, f"{newest} by its own rules"]
    return markdown(columns, ((scenario, row(scenario)) for scenario in scenarios))


def _in_short(words: str) -> str:
    if words.startswith("conforms") and "followed" not in words:
        return "-"
    return words.removeprefix("violates: ").removeprefix("conforms, ").removesuffix(" followed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("checks", type=Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    verdicts, by_profile = verdicts_of(arguments.traces), verdicts_of(arguments.traces, OF_THE_TRACE)
    noticed = noticed_in(arguments.checks)
    written = table(verdicts, by_profile, noticed)
    if arguments.write:
        write_json(VERDICTS, verdicts)
        write_json(BY_PROFILE, by_profile)
        write_json(OWN_CHECKS, noticed)
        PAGE.write(written)
    print(written)


if __name__ == "__main__":
    main()
