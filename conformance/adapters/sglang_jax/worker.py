"""Stands where sglang-jax runs its model: the pools are its own, on a CPU, and the forward makes up its tokens."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from kvproof.conformance.adapters.sglang_jax.settings import Settings

FULL_LAYERS, WINDOW_LAYERS = [0], [1]
HEAD_DIM = 128
# A scheduler pads what it sends to the model to one of these.
PADDINGS = ([1024], [64], [65536])

MakeTokens = Callable[[Sequence[str]], list[int]]


class Worker:
    """In place of ModelWorker and of its overlapping client: what the scheduler asks of either."""

    cur_sampling_info = None

    def __init__(self, settings: Settings, mesh: Any, make_tokens: MakeTokens) -> None:
        self._settings = settings
        self._make_tokens = make_tokens
        self._launched: deque[list[int]] = deque()
        self.is_hybrid = settings.window > 0
        self.sliding_window_size = settings.window or None
        self._rows, self._allocator = own_pools(settings, mesh)
        self.batch: Any = None
        """the batch that is about to run; whoever runs it says so"""

    def get_memory_pool(self) -> tuple[Any, Any]:
        return self._rows, self._allocator

    def get_tokens_per_layer_info(self) -> tuple[int, int]:
        return self._settings.pool_tokens, self._settings.pool_tokens

    def get_worker_info(self) -> tuple[Any, ...]:
        s = self._settings
        longest = s.context_length - 1
        of_server = {"chunked_prefill_size": s.chunked_prefill_size, "disable_radix_cache": s.disable_radix_cache}
        rows = (self._rows.size, self._rows.max_context_len)
        most = (s.pool_tokens, max(s.pool_tokens, 2048), s.max_running_requests, longest, longest - 1)
        return (*most, s.seed, "cpu", of_server, *rows, s.pool_tokens)

    def get_precompile_paddings(self) -> tuple[list[int], list[int], list[int]]:
        return PADDINGS

    def forward_batch_generation(self, batch: Any, sampling_metadata: Any = None) -> tuple[Any, Any, int]:
        """One made-up token for each request, and nothing for the padding."""
        import numpy as np

        names = [req.rid for info in self.batch.reqs_info for req in info.reqs or []]
        tokens = self._make_tokens(names) + [0] * (batch.per_dp_bs_size - len(names))
        self._launched.append(tokens)
        return _no_logits(), np.array(tokens, dtype=np.int32), 0

    def resolve_last_batch_result(self, launch_done: Any = None) -> tuple[Any, list[int], int]:
        return _no_logits(), self._launched.popleft(), 0


def _no_logits() -> Any:
    return SimpleNamespace(next_token_logprobs=None, input_token_logprobs=None, hidden_states=None)


def own_pools(settings: Settings, mesh: Any) -> tuple[Any, Any]:
    """Its row pool and its allocator over its own KV buffers, as its model runner builds them: one head, one layer a kind."""
    import jax.numpy as jnp
    import numpy as np
    from sgl_jax.srt.mem_cache import allocator, memory_pool

    size, page_size = settings.pool_tokens, settings.page_size
    rows = memory_pool.ReqToTokenPool(settings.max_running_requests, settings.context_length + 4, dtype=np.int32)
    if hasattr(rows, "init_cache_loc_host_buffer"):  # newer checkouts pad into a buffer that their worker reserves
        rows.init_cache_loc_host_buffer(PADDINGS[-1][-1])
    shape = {"dtype": jnp.float32, "head_num": 1, "head_dim": HEAD_DIM, "mesh": mesh}
    if settings.window:
        both = memory_pool.SWAKVPool(
            size=size,
            size_swa=size,
            page_size=page_size,
            swa_attention_layer_ids=WINDOW_LAYERS,
            full_attention_layer_ids=FULL_LAYERS,
            **shape,
        )
        return rows, allocator.SWATokenToKVPoolAllocator(size, size, kvcache=both, page_size=page_size)
    kv = memory_pool.MHATokenToKVPool(size=size, page_size=page_size, layer_num=len(FULL_LAYERS), **shape)
    if page_size == 1:
        return rows, allocator.TokenToKVPoolAllocator(size=size, kvcache=kv)
    return rows, allocator.PagedTokenToKVPoolAllocator(size=size, page_size=page_size, kvcache=kv)
