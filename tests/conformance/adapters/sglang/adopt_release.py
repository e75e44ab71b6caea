"""Takes in releases of SGLang that nobody has looked at, and writes their rows in docs/sglang.md.

    make adopt RELEASE=0.5.22

A release is installed apart, with the versions that its own metadata ask for. Every scenario is recorded at both page sizes, and
judged by the rules of each release that is known: the nearest is the one from whose verdicts the fewest differ, and of equals
the one that keeps most in the same places. It is fuzzed by the rules of the nearest, for as long as its row says that it was.
What differs is printed, with the command that shows it, for a person to confirm: as a rule of a profile, or as a finding. Exits
with 1 if a release cannot be driven; the others have their rows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fuzzing.release_matrix import by_name, numbers, searched
from install_apart import install, site_of
from make_env import ENVIRONMENT, ROOT, TESTED_OFTEN, make
from sglang_process import PAGE_SIZES, RECORD_SCENARIOS
from sglang_verdicts import BY_PROFILE, PAGE, verdict_of
from verdict_page import VerdictPage, Verdicts, write_json

from kvproof.conformance.adapters.sglang.releases import RELEASES
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.spec.profiles import profile_of

ADOPTED = Path(__file__).with_name("adopted.json")
SEAMS = Path(__file__).with_name("seams.json")
TABLE = VerdictPage(PAGE.name, "<!-- every release: written by make adopt -->")
OUT = ROOT / "out" / "adopt"
CONFORMS, CANNOT_RUN = "conforms", "cannot run"
SECONDS = 60
COLUMNS = ("release", "most like", "by the rules of", "recorded", "other verdicts than that one", "fuzzed", "found")


@dataclass(frozen=True)
class Row:
    """What is known of a release by running it."""

    release: str
    packages: tuple[str, ...]
    nearest: str
    """The known release that it behaves like."""
    profile: str
    runs: int
    conforming: int
    """By that profile; a run in which a known deviation was followed is one of them."""
    differs: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Run -> its verdict, and that of the nearest release."""
    seams: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    """Seam -> where it is kept, and where the nearest release keeps it."""
    seconds: float = 0
    schedules: int = 0
    steps: int = 0
    found: tuple[str, ...] = ()
    """Faults, or signatures of what no fault explains."""


def adopt(release: str, seconds: float) -> Row:
    """Raises RuntimeError, with what was said, for a release that cannot be driven as it is."""
    packages = install(release)
    traces = record(release)
    nearest, differs, verdicts = nearest_to(release, traces)
    profile = profile_name(nearest)
    say(f"{release}: fuzzing for {seconds:.0f} s")
    fuzzed = searched(ENVIRONMENT, site_of(release), 1, seconds, "--profile", profile, folder=OUT / release / "fuzz")
    return Row(
        release,
        packages,
        nearest,
        profile,
        len(verdicts),
        sum(verdict.startswith(CONFORMS) for verdict in verdicts.values()),
        differs,
        other_seams(traces, nearest),
        seconds,
        int(fuzzed["schedules"]),
        int(fuzzed["steps"]),
        tuple(sorted(by_name(fuzzed["found"]))),
    )


def record(release: str) -> Path:
    """The folder of its traces."""
    say(f"{release}: recording")
    folder = OUT / release
    shutil.rmtree(folder, ignore_errors=True)
    sizes = map(str, PAGE_SIZES)
    run(
        release,
        str(ENVIRONMENT / "bin" / "python"),
        "-W",
        "ignore",
        RECORD_SCENARIOS,
        "sglang",
        str(OUT),
        "--page-size",
        *sizes,
    )
    return folder


def run(release: str, *command: str) -> None:
    """A command on the release. Raises RuntimeError, with what it said last, where it fails."""
    environment = {**os.environ, "PYTHONPATH": str(site_of(release))}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=3600)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} exited with {done.returncode}:\n{done.stderr[-3000:]}")


def nearest_to(release: str, traces: Path) -> tuple[str, dict[str, tuple[str, str]], dict[str, str]]:
    """The known release from which the fewest verdicts differ; which; all by its rules.

    Of equals the one that can run the most of the same scenarios, then the one that keeps most in the same places.
    """
    say(f"{release}: judging by the rules of each known release")
    by_profile: Verdicts = json.loads(BY_PROFILE.read_text())
    best: tuple[tuple[int, int, int, bool, int], str, dict[str, tuple[str, str]], dict[str, str]] | None = None
    judged: dict[str, dict[str, str]] = {}
    for place, known in enumerate(by_profile):
        name = profile_name(known)
        if name not in judged:
            judged[name] = {trace.stem: verdict_of(trace, name) for trace in sorted(traces.glob("*-p*.jsonl"))}
        differs = dict(other_verdicts(judged[name], by_profile[known]))
        unlike = sum(CANNOT_RUN not in both for both in differs.values())
        how_far = (unlike, len(differs), len(other_seams(traces, known)), numbers(known) > numbers(release), -place)
        if best is None or how_far < best[0]:
            best = how_far, known, differs, judged[name]
    assert best is not None
    return best[1:]


def other_verdicts(
    verdicts: Mapping[str, str], known: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, tuple[str, str]]]:
    there = {f"{scenario}-p{size}": verdict for scenario, sizes in known.items() for size, verdict in sizes.items()}
    for run in sorted({*verdicts, *there}):
        here, of_known = verdicts.get(run, CANNOT_RUN), there.get(run, CANNOT_RUN)
        if here != of_known:
            yield run, (here, of_known)


def other_seams(traces: Path, nearest: str) -> dict[str, tuple[str | None, str | None]]:
    known = json.loads(SEAMS.read_text())[nearest]
    here = read_trace(next(iter(sorted(traces.glob("*.jsonl"))))).header.extra["seams"]
    return {name: (here.get(name), known[name]) for name in known if here.get(name) != known[name]}


def profile_name(release: str) -> str:
    profile = profile_of(f"sglang {release}")
    assert profile is not None, f"no profile says that it is of SGLang {release}"
    return profile.name


def table(rows: Mapping[str, Any]) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
    for release in sorted(rows, key=numbers):
        row = rows[release]
        differs = "; ".join(f"`{run}`: {here} (there: {there})" for run, (here, there) in row["differs"].items())
        searched = f"{row['seconds']:.0f} s, {row['schedules']:,} schedules, {row['steps']:,} steps"
        recorded = f"{row['runs']} runs, {row['conforming']} conform"
        found = ", ".join(row["found"]) or "nothing"
        cells = (release, row["nearest"], f"`{row['profile']}`", recorded, differs or "none", searched, found)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def proposals(row: Row) -> Iterator[str]:
    """What a person has to look at before the release is called known."""
    yield f"SGLang {row.release} is most like {row.nearest}: by {row.profile}, {row.conforming} of {row.runs} runs conform"
    for seam, (here, there) in row.seams.items():
        yield f"  {seam} is kept otherwise: {here or 'not found'} (in {row.nearest}: {there or 'not found'})"
    for name, (here, there) in row.differs.items():
        yield f"  {name}: {here} (in {row.nearest}: {there})"
        if here != CANNOT_RUN:
            yield f"    kvproof explain {OUT.relative_to(ROOT)}/{row.release}/{name}.jsonl --profile {row.profile}"
    if row.release == row.nearest:
        yield "  it is known: nothing is to be added"
    elif not row.differs and not row.seams:
        yield f"  nothing differs: add it to {row.profile} in spec/profiles.py and to releases.py to have it known"
    else:
        yield "  each is a rule of a profile (spec/profiles.py), a fault (spec/faults), or a finding (docs/findings)"


def rows_so_far() -> dict[str, Any]:
    """Read each time: others may write rows of other releases meanwhile."""
    rows: dict[str, Any] = json.loads(ADOPTED.read_text()) if ADOPTED.exists() else {}
    return rows


def seconds_of_row(release: str) -> float:
    """A shorter search would find less than the row says."""
    seconds: float = rows_so_far().get(release, {"seconds": SECONDS})["seconds"]
    return seconds


def say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("releases", nargs="+", metavar="RELEASE")
    parser.add_argument("--seconds", type=float, help=f"of fuzzing, each; else what its row says, or {SECONDS}")
    arguments = parser.parse_args()
    make(None, TESTED_OFTEN)
    code = 0
    for release in arguments.releases:
        try:
            row = adopt(release, arguments.seconds or seconds_of_row(release))
        except RuntimeError as error:
            print(f"error: SGLang {release}: {error}", file=sys.stderr, flush=True)
            code = 1
            continue
        rows = rows_so_far()
        rows[release] = asdict(row)
        write_json(ADOPTED, {release: rows[release] for release in sorted(rows, key=numbers)})
        TABLE.write(table(rows))
        print("\n".join(proposals(row)), flush=True)
    missing = [known.version for known in RELEASES if known.version not in rows_so_far()]
    if missing:
        print(f"without a row: {', '.join(missing)}")
    return code


if __name__ == "__main__":
    sys.exit(main())
