"""A branch to be fuzzed: the reference implementation with one method replaced. `kvproof fuzz --target my_branch:factory`.

Where a turn inherits a row, the tail behind what is kept is freed. The branch begins that free at the kept length itself, not at
the next page boundary: shorter, and surely the same? (It is F22862b, which a release of SGLang had.)
"""

from __future__ import annotations

from kvproof.conformance.fuzz.reference import Reference
from kvproof.impl.session import StreamingSessionCache


def orphan_start(self: StreamingSessionCache, prefix_len: int) -> int:
    return prefix_len


def factory() -> Reference:
    StreamingSessionCache.orphan_start = orphan_start  # type: ignore[method-assign]
    target = Reference()
    target.name = "my_branch:factory"
    target.seeds = [seed.model_copy(update={"target": target.name}) for seed in target.seeds]
    return target
