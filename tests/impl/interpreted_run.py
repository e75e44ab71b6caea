"""Plays scenarios with the pools on the device's path and the Triton kernels, through Triton's interpreter, and prints a digest
of the events. Run by test_device_run.py.

A process of its own: Triton decides at import whether it interprets. Argument: scenarios with page sizes and settings, as JSON.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

from engine import Recorded

from kvproof.impl.scenario_player import play, scenario_config


def digest(name: str, page_size: int, settings: dict[str, Any]) -> tuple[int, str]:
    """How many events there were, and a hash of them."""
    recorded = Recorded()
    play(name, scenario_config(name, page_size=page_size, settings=settings), recorded)
    return len(recorded.events), hashlib.sha256(repr(recorded.events).encode()).hexdigest()


if __name__ == "__main__":
    from kvproof.kernels import implementation, triton_allocation, triton_census, triton_trace_ring

    implementation.REFERENCES.update(allocation=triton_allocation, census=triton_census, trace_ring=triton_trace_ring)
    print(json.dumps([digest(*asked) for asked in json.loads(sys.argv[1])]))
