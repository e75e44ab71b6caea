"""Runs on the sliding-window pool, sound ones and two of a scheduler that is made to be wrong; in SGLang's environment.

What is made wrong is SGLang's own allocator, not the recorder: the traces show whether anyone would notice.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
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


def runs(folder: str) -> None:
    for scenario, settings in SOUND.items():
        for page_size in PAGE_SIZES:
            out = Path(folder) / f"{scenario}-p{page_size}.jsonl"
            record_scenario(scenario, out, page_size=page_size, settings=dict(settings))
    import_sglang()
    allocator: Any = importlib.import_module("sglang.srt.mem_cache.swa_memory_pool").SWATokenToKVPoolAllocator
    for fault in (keeps_one_back, gives_the_same_twice):
        wrong = partial(fault, allocator.free_swa)
        with mock.patch.object(allocator, "free_swa", lambda pool, indices, wrong=wrong: wrong(pool, indices)):
            record_scenario("matrix-window", Path(folder) / f"{fault.__name__}.jsonl", page_size=4)


def keeps_one_back(free_swa: Callable[..., None], pool: Any, indices: Any) -> None:
    """What leaves the window is freed but for its last page, whose entry in the map is cleared like the others."""
    first_of_last_page = indices[-1:] // pool.page_size * pool.page_size
    for place in range(pool.page_size):
        pool.full_to_swa_index_mapping[first_of_last_page + place] = 0
    free_swa(pool, indices)


def gives_the_same_twice(free_swa: Callable[..., None], pool: Any, indices: Any) -> None:
    """A window page that was freed stands in the free list twice, so two rows come to share it."""
    window = pool.full_to_swa_index_mapping[indices]
    free_swa(pool, indices)
    pool.swa_attn_allocator.free(window[window > 0][: pool.page_size])
