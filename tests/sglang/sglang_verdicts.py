"""The verdict of each scenario on each release in a few words, and beside it what SGLang's own memory checks said.

    PYTHONPATH=tests python tests/sglang/sglang_verdicts.py TRACES CHECKS --write

writes `verdicts.json` and `own_checks.json`, which the tests compare with, and the table in `docs/sglang.md`. TRACES holds a
folder of traces per release, CHECKS a file `<release>.json` per release, as `python -m kvproof.conformance.adapters.sglang` and
`python -m kvproof.conformance.adapters.sglang.own_checks` write them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from verdict_page import VerdictPage, Verdicts, markdown, write_json

from kvproof.conformance.adapters.sglang import RELEASES
from kvproof.conformance.replay import CONFORMS, INCOMPLETE, replay

VERDICTS = Path(__file__).with_name("verdicts.json")
OWN_CHECKS = Path(__file__).with_name("own_checks.json")
PAGE = VerdictPage("sglang.md", "<!-- what is found by whom: written by tests/sglang/sglang_verdicts.py -->")


def verdict_of(trace: Path) -> str:
    report = replay(trace)
    if report.verdict == CONFORMS:
        return "conforms" if not report.followed else f"conforms, {' '.join(sorted(report.followed))} followed"
    if report.verdict == INCOMPLETE:
        return "incomplete"
    first = report.first
    assert first is not None
    faults = [fault.id for fault in first.explained_by]
    return f"violates: {faults[0] if faults else first.event.action}"


def verdicts_of(traces: Path) -> Verdicts:
    found: Verdicts = {}
    for known in RELEASES:
        of_release = found.setdefault(known.version, {})
        for trace in sorted((traces / known.version).glob("*-p*.jsonl")):
            scenario, _, page_size = trace.stem.rpartition("-p")
            of_release.setdefault(scenario, {})[page_size] = verdict_of(trace)
    return found


def noticed_in(checks: Path) -> Verdicts:
    files = {known.version: checks / f"{known.version}.json" for known in RELEASES}
    return {release: json.loads(file.read_text()) for release, file in files.items() if file.exists()}


def table(verdicts: Verdicts, noticed: Verdicts, page_size: str = "1") -> str:
    """Markdown: per scenario and release what SGLang's checks noticed / what the replay found. Dash: nothing."""
    releases = [release for release in verdicts if release in noticed]
    scenarios = sorted({scenario for release in releases for scenario in verdicts[release]})

    def cell(release: str, scenario: str) -> str:
        own = noticed[release].get(scenario, {}).get(page_size, "")
        ours = verdicts[release].get(scenario, {}).get(page_size, "")
        ours = "-" if ours.startswith("conforms") and "followed" not in ours else ours.removeprefix("violates: ")
        return f"{own or '-'} / {ours.removeprefix('conforms, ').removesuffix(' followed')}"

    return markdown(releases, ((scenario, [cell(of, scenario) for of in releases]) for scenario in scenarios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("checks", type=Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    verdicts = verdicts_of(arguments.traces)
    noticed = noticed_in(arguments.checks)
    written = table(verdicts, noticed)
    if arguments.write:
        write_json(VERDICTS, verdicts)
        write_json(OWN_CHECKS, noticed)
        PAGE.write(written)
    print(written)


if __name__ == "__main__":
    main()
