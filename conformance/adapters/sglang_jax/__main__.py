"""By hand: `python -m kvproof.conformance.adapters.sglang_jax out/ plain --page-size 4` (no name: every scenario)."""

from __future__ import annotations

import sys

from kvproof.conformance.adapters.record_by_hand import record_by_hand
from kvproof.conformance.adapters.sglang_jax import SCENARIOS, record_scenario

if __name__ == "__main__":
    sys.exit(record_by_hand(str(__package__), __doc__, SCENARIOS, record_scenario))
