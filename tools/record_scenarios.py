"""Records scenarios of one driven scheduler, all in one process, into one folder.

    python tools/record_scenarios.py sglang out/ basic retract --page-size 4

No name: every scenario that can run here. A trace is named <scenario>-p<page size>.jsonl; those of SGLang go to a folder that is
named after the installed release. Exits 2 with one line if something cannot be recorded.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from kvproof.conformance.adapters.scenarios import TARGETS, load
from kvproof.conformance.adapters.sglang.releases import installed_version
from kvproof.conformance.cli.commands.options import parse_settings
from kvproof.conformance.errors import UserError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=("sglang", "sglang-jax"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO")
    parser.add_argument("--page-size", type=int, nargs="+", default=[1])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="of each run")
    arguments = parser.parse_args()
    try:
        record(arguments, load(arguments.target, TARGETS[arguments.target].adapter))
    except UserError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 2
    return 0


def record(arguments: argparse.Namespace, adapter: Any) -> None:
    names, folder, settings = adapter.scenarios_here(), arguments.folder, parse_settings(arguments.settings)
    if arguments.target == "sglang":
        folder /= installed_version()
    folder.mkdir(parents=True, exist_ok=True)
    for page_size in arguments.page_size:
        for name in arguments.scenarios or names:
            out = folder / f"{name}-p{page_size}.jsonl"
            result = adapter.record_scenario(name, out, page_size=page_size, seed=arguments.seed, settings=settings)
            print(f"{result.path}: {result.events} events, {result.steps} steps, {result.reason}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
