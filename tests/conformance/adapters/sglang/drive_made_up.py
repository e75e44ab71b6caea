"""Made-up batches of every kind, read by machine code and by Python: the events are the same.

What CC names builds it, and may add checks of memory to it.
"""

from __future__ import annotations

import sys

from test_front import driven, steps_of

from kvproof.conformance.adapters.sglang import front
from kvproof.conformance.adapters.sglang.steps import WAYS


def main() -> None:
    front.build()
    compared = 0
    for seed in range(int(sys.argv[1])):
        for page_size in (1, 2, 4, 16, 64):
            for overlap in (False, True):
                for way in WAYS:
                    quick, slow = (
                        driven(page_size, seed, overlap=overlap, way=way, machine=machine) for machine in (True, False)
                    )
                    assert steps_of(quick) == steps_of(slow), (seed, page_size, overlap, way)
                    compared += 1
    print(f"the same: {compared}")


if __name__ == "__main__":
    main()
