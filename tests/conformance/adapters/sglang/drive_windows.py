"""Records runs on the sliding-window pool, sound ones and two of a scheduler that is made to be wrong; for SGLang's environment.

    python drive_windows.py FOLDER

What is made wrong is SGLang's own allocator, not the recorder: the traces show whether anyone would notice.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from kvproof.conformance.adapters.sglang.engine import import_sglang
from kvproof.conformance.adapters.sglang.record import record_scenario

# scenario -> settings beside the page size. Under pressure the tree evicts window pages, alone or with the pages that name them.
SOUND: dict[str, dict[str, int]] = {
    "matrix-window": {},
    "matrix-window-overlap": {},
    "pressure": {"window": 8},
    "storm": {"window": 8},
    "many-sessions": {"window": 8},
}
PAGE_SIZES = (1, 4, 16)


def main() -> None:
    folder = Path(sys.argv[1])
    for scenario, settings in SOUND.items():
        for page_size in PAGE_SIZES:
            out = folder / f"{scenario}-p{page_size}.jsonl"
            record_scenario(scenario, out, page_size=page_size, settings=dict(settings))
    for fault in (keeps_one_back, gives_the_same_twice):
        with fault():
            record_scenario("matrix-window", folder / f"{fault.__name__}.jsonl", page_size=4)


@contextmanager
def keeps_one_back() -> Iterator[None]:
    """What leaves the window is freed but for its last page, whose entry in the map is cleared like the others."""
    allocator = _two_pools()
    original = allocator.free_swa

    def free_swa(self: Any, indices: Any) -> None:
        first_of_last_page = indices[-1:] // self.page_size * self.page_size
        for place in range(self.page_size):
            self.full_to_swa_index_mapping[first_of_last_page + place] = 0
        original(self, indices)

    with mock.patch.object(allocator, "free_swa", free_swa):
        yield


@contextmanager
def gives_the_same_twice() -> Iterator[None]:
    """A window page that was freed stands in the free list twice, so two rows come to share it."""
    allocator = _two_pools()
    original = allocator.free_swa

    def free_swa(self: Any, indices: Any) -> None:
        window = self.full_to_swa_index_mapping[indices]
        original(self, indices)
        self.swa_attn_allocator.free(window[window > 0][: self.page_size])

    with mock.patch.object(allocator, "free_swa", free_swa):
        yield


def _two_pools() -> Any:
    import_sglang()
    return importlib.import_module("sglang.srt.mem_cache.swa_memory_pool").SWATokenToKVPoolAllocator


if __name__ == "__main__":
    main()
