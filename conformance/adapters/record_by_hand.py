"""The command of an adapter for use by hand: scenarios and page sizes, all in one process, into one folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from kvproof.conformance.adapters.scenario_run import RecordResult
from kvproof.conformance.adapters.settings_arguments import parse_settings
from kvproof.conformance.errors import UserError


def record_by_hand(
    adapter: str,
    description: str | None,
    scenarios: Iterable[str],
    record: Callable[..., RecordResult],
    *,
    below: Callable[[], str] = str,
) -> int:
    """The exit code. `below`: the folder inside the one that was asked for, once it is known; none if it is empty."""
    scenarios = list(scenarios)
    parser = argparse.ArgumentParser(prog=f"python -m {adapter}", description=description)
    parser.add_argument("folder", type=Path, help="a trace is named <scenario>-p<page size>.jsonl")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(scenarios))
    parser.add_argument("--page-size", type=int, nargs="+", default=[1])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="of each run")
    arguments = parser.parse_args()
    try:
        folder, settings = arguments.folder / below(), parse_settings(arguments.settings)
        for page_size in arguments.page_size:
            for name in arguments.scenarios or scenarios:
                out = folder / f"{name}-p{page_size}.jsonl"
                result = record(name, out, page_size=page_size, seed=arguments.seed, settings=settings)
                print(f"{result.path}: {result.events} events, {result.steps} steps, {result.reason}", flush=True)
    except UserError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 2
    return 0
