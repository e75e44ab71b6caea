"""The kill matrix over real history: `kvproof fuzz --target sglang` on each installed release, over several seeds.

    PYTHONPATH=tools:benchmarks python -m fuzzing.release_matrix
        [--releases 0.5.10.post1 0.5.11 ...] [--seeds N] [--seconds S] [--environment .venv-sglang]

prints a table: of each release what was found, by which name of the catalogue, in how many of the seeds, and the medians of the
seconds and of the schedule's acts up to the first finding. It is written to benchmarks/results/fuzz_releases.md, unless some
releases were asked for. `matrix` gives the same as data.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import RESULTS, machine, say, write_page

PAGE = RESULTS / "fuzz_releases.md"
ENVIRONMENT = Path(__file__).resolve().parents[2] / ".venv-sglang"
SECONDS_TO_START_AND_SHRINK = 900
FOUND_OR_NOT = (0, 1)
"""Exit codes of a search that was done."""


@dataclass(frozen=True)
class Row:
    """One name, or one signature without a name, on one release."""

    release: str
    name: str
    """A fault of the catalogue; else the signature."""
    in_seeds: int
    """Of how many seeds it was found with."""
    seconds: float
    """To the first finding of it: the median over the seeds that found it."""
    acts: float
    """Of the shrunk schedule: the median."""


def releases_of(environment: Path) -> list[str]:
    """Those installed, in their order."""
    return sorted((path.name for path in (environment / "site").iterdir()), key=numbers)


def matrix(environment: Path, releases: Sequence[str], seeds: int, seconds: float) -> Iterator[list[Row]]:
    """Release by release. Raises RuntimeError, with what was said, if a search could not be done."""
    for release in releases:
        site = environment / "site" / release
        first: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for seed in range(1, seeds + 1):
            say(f"SGLang {release}, seed {seed}")
            for name, of_name in by_name(searched(environment, site, seed, seconds)["found"]).items():
                first[name].append(of_name)
        yield [_row(release, name, found) for name, found in sorted(first.items())]


def table(rows: Sequence[Row], seeds: int) -> str:
    lines = ["| release | found | seeds | seconds to the first | acts |", "| --- | --- | --- | --- | --- |"]
    for row in rows:
        lines.append(f"| {row.release} | {row.name} | {row.in_seeds}/{seeds} | {row.seconds:.1f} | {row.acts:.0f} |")
    return "\n".join(lines)


def _row(release: str, name: str, found: Sequence[tuple[float, int]]) -> Row:
    seconds, acts = (statistics.median(values) for values in zip(*found, strict=True))
    return Row(release, name, len(found), seconds, acts)


def by_name(found: Sequence[dict[str, Any]]) -> dict[str, tuple[float, int]]:
    """Of each name the first finding: its seconds, and acts of its schedule."""
    first: dict[str, tuple[float, int]] = {}
    for one in sorted(found, key=lambda one: float(one["after_seconds"])):
        first.setdefault((one["faults"] or [one["signature"]])[0], (float(one["after_seconds"]), int(one["acts"])))
    return first


def searched(
    environment: Path, site: Path, seed: int, seconds: float, *more: str, folder: Path | None = None
) -> dict[str, Any]:
    """The summary of the search of the release in this folder. `more`: options of `kvproof fuzz`. `folder`: of the findings."""
    passing = tempfile.TemporaryDirectory(prefix="kvproof-releases-") if folder is None else nullcontext(folder)
    with passing as out:
        command = [str(environment / "bin" / "kvproof"), "fuzz", "--target", "sglang", "--quiet", "--out", str(out)]
        command += ["--seconds", str(seconds), "--seed", str(seed), *more]
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": str(site)},
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds + SECONDS_TO_START_AND_SHRINK,
        )
        if done.returncode not in FOUND_OR_NOT:
            raise RuntimeError(f"SGLang {site.name}, seed {seed}: exit code {done.returncode}: {done.stderr[-2000:]}")
        summary: dict[str, Any] = json.loads(Path(out, "summary.json").read_text())
        return summary


def numbers(release: str) -> list[int]:
    """By which releases are ordered."""
    return [int(part) for part in release.replace(".post", ".").split(".")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, default=ENVIRONMENT)
    parser.add_argument("--releases", nargs="+", help="instead of all that are installed")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60)
    arguments = parser.parse_args()
    releases = arguments.releases or releases_of(arguments.environment)
    found = matrix(arguments.environment, releases, arguments.seeds, arguments.seconds)
    rows = [row for of_release in found for row in of_release]
    text = "\n".join([*_head(releases, arguments.seeds, arguments.seconds), table(rows, arguments.seeds)])
    print(text)
    if arguments.releases is None:
        write_page(PAGE, text)


def _head(releases: Sequence[str], seeds: int, seconds: float) -> list[str]:
    return [
        "# Real releases of SGLang, fuzzed",
        "",
        f"Written by `make kill-matrix`. {machine()}; load at the end: {os.getloadavg()[0]:.0f}. Releases {', '.join(releases)}; "
        f"{seeds} seeds each, {seconds:.0f} s of search each. Seconds and acts are medians over the seeds that found it. What "
        "has no name of the catalogue is shown by its signature; docs/findings/ has pages for what was followed to its cause.",
        "",
    ]


if __name__ == "__main__":
    main()
