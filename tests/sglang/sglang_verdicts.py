"""The verdict of each scenario on each release in a few words, and beside it what SGLang's own memory checks said.

    python tests/sglang/sglang_verdicts.py TRACES CHECKS --write

writes `verdicts.json` and `own_checks.json`, which the tests compare with, and the table in `docs/sglang.md`. TRACES holds a
folder of traces per release, CHECKS a file `<release>.json` per release, as `python -m kvproof.conformance.adapters.sglang` and
`python -m kvproof.conformance.adapters.sglang.own_checks` write them.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from kvproof.conformance.adapters.sglang import RELEASES
from kvproof.conformance.replay import CONFORMS, INCOMPLETE, replay

VERDICTS = Path(__file__).with_name("verdicts.json")
OWN_CHECKS = Path(__file__).with_name("own_checks.json")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "sglang.md"
BEGIN, END = "<!-- what is found by whom: written by tests/sglang/sglang_verdicts.py -->", "<!-- end -->"

Verdicts = dict[str, dict[str, dict[str, str]]]
"""release -> scenario -> page size -> words"""


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
    lines = [f"| scenario | {' | '.join(releases)} |", f"| --- |{' --- |' * len(releases)}"]
    for scenario in scenarios:
        cells = []
        for release in releases:
            own = noticed[release].get(scenario, {}).get(page_size, "")
            ours = verdicts[release].get(scenario, {}).get(page_size, "")
            ours = "-" if ours.startswith("conforms") and "followed" not in ours else ours.removeprefix("violates: ")
            cells.append(f"{own or '-'} / {ours.removeprefix('conforms, ').removesuffix(' followed')}")
        lines.append(f"| `{scenario}` | {' | '.join(cells)} |")
    return "\n".join(lines)


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
        VERDICTS.write_text(json.dumps(verdicts, indent=1) + "\n")
        OWN_CHECKS.write_text(json.dumps(noticed, indent=1) + "\n")
        page = PAGE.read_text()
        PAGE.write_text(f"{page.partition(BEGIN)[0]}{BEGIN}\n\n{written}\n\n{END}{page.partition(END)[2]}")
    print(written)


if __name__ == "__main__":
    main()
