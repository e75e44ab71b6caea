"""What SGLang's own memory checks notice in each scenario, with both of them on: when idle, and after every step.

    python tools/sglang_own_checks.py FOLDER

writes `FOLDER/<release>.json`: scenario -> page size -> what was noticed, in words; empty where it was nothing. Nothing is
recorded meanwhile. A server would end at the first alarm; here the run continues.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from kvproof.conformance.adapters.scenario_run import run_to_its_end
from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.record import scenarios_here, settings_for
from kvproof.conformance.adapters.sglang.releases import installed_version
from kvproof.conformance.adapters.sglang.scenarios import SCENARIOS


def noticed(name: str, page_size: int) -> str:
    scenario = SCENARIOS[name]
    alarms = {"idle": 0, "busy": 0}

    def count(busy: bool, passed: bool) -> None:
        if not passed:
            alarms["busy" if busy else "idle"] += 1

    with Headless(settings_for(scenario, page_size, 0, {}), checks="every") as headless:
        headless.on_check = count
        reason = run_to_its_end(scenario, headless)
    words = [f"{kind} check" for kind, number in alarms.items() if number]
    if reason.startswith("crashed"):
        words.append("crash")
    return ", ".join(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--page-size", type=int, nargs="+", default=[1, 4])
    arguments = parser.parse_args()
    found = {name: {str(size): noticed(name, size) for size in arguments.page_size} for name in scenarios_here()}
    arguments.folder.mkdir(parents=True, exist_ok=True)
    out = arguments.folder / f"{installed_version()}.json"
    out.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(out)


if __name__ == "__main__":
    main()
