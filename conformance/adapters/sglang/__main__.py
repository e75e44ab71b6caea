"""By hand: `python -m kvproof.conformance.adapters.sglang out/ basic retract --page-size 4` (no name: every scenario).

Traces go to a folder that is named after the installed release, below the one that is named.
"""

from __future__ import annotations

import sys

from kvproof.conformance.adapters.record_by_hand import record_by_hand
from kvproof.conformance.adapters.sglang.record import record_scenario, scenarios_here
from kvproof.conformance.adapters.sglang.releases import installed_version

if __name__ == "__main__":
    release = installed_version()
    sys.exit(record_by_hand(str(__package__), __doc__, scenarios_here(), record_scenario, below=lambda: release))
