"""A server's scheduler, as far as a trace can tell: SGLang's plugin loader loads kvproof, whose hook surrounds the event loop.

    python drive_served.py SCENARIO

prints `ready` when everything is imported, waits for a line, runs the scenario, and prints what clients got and pools held.
"""

from __future__ import annotations

import json
import sys

from kvproof.conformance.adapters.scenario_run import run_to_its_end
from kvproof.conformance.adapters.sglang.engine import import_sglang
from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.record import settings_for
from kvproof.conformance.adapters.sglang.scenarios import SCENARIOS


def main() -> None:
    scenario = SCENARIOS[sys.argv[1]]
    import_sglang()
    from sglang.srt.plugins import load_plugins

    load_plugins()
    print("ready", flush=True)
    sys.stdin.readline()
    with Headless(settings_for(scenario, 4, 0, {})) as headless:
        reason = run_to_its_end(scenario, headless)
    outputs = [(reply.rids, reply.output_ids) for reply in headless.replies if hasattr(reply, "output_ids")]
    print(json.dumps([reason, headless.steps, outputs, headless.free_pages()], default=list))


if __name__ == "__main__":
    main()
