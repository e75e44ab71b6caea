"""By hand: `python -m kvproof.conformance.adapters.sglang_jax out/ plain --page-size 4` (no name: every scenario)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kvproof.conformance.errors import UserError

from . import SCENARIOS, record_scenario


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kvproof.conformance.adapters.sglang_jax", description=__doc__)
    parser.add_argument("folder", type=Path, help="traces go to FOLDER/<scenario>-p<page size>.jsonl")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--page-size", type=int, nargs="+", default=[1])
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    try:
        for page_size in arguments.page_size:
            for name in arguments.scenarios or SCENARIOS:
                out = arguments.folder / f"{name}-p{page_size}.jsonl"
                result = record_scenario(name, out, page_size=page_size, seed=arguments.seed)
                print(f"{result.path}: {result.events} events, {result.reason}", flush=True)
    except UserError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
