"""When results are taken: in the step that launched them, or with overlap in the next. Who is over then, ends then; and the
prompt of who continues is in the tree."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from policies.broken import require, tap

if TYPE_CHECKING:
    from kvproof.impl.request import Request
    from kvproof.impl.scheduler import Scheduler
    from kvproof.impl.state import Batch, Chunk, Launched


class Steps:
    def __init__(self, scheduler: Scheduler) -> None:
        self._state = scheduler.state
        self.between_halves = False
        self.given_time: Request | None = None
        """Who is being sent back to the queue: if it has no token to show, all results are taken first."""
        self._launched_now = False
        tap(scheduler, "launch_step", self._launch_step)
        tap(scheduler, "_launch", self._launch)
        tap(scheduler, "take_results", self._take_results)

    def carries(self, req: Request) -> bool:
        """Whether a step in flight does."""
        return any(req in requests_of(launched) for launched in self._state.launched)

    def prefills(self, req: Request) -> bool:
        return any(chunk.req is req for launched in self._state.launched for chunk in launched.chunks)

    def _launch_step(self, inner: Callable[[], None]) -> None:
        self._launched_now = False
        inner()
        self.between_halves = True

    def _launch(self, inner: Callable[[Batch], None], batch: Batch) -> None:
        self._launched_now = True
        inner(batch)

    def _take_results(self, inner: Callable[[], None]) -> None:
        if self.given_time is not None and not self.between_halves:
            require(
                not self.given_time.output_ids, f"for {self.given_time.rid} results are taken early, and it has one"
            )
            self._launched_now = False
        stays = 1 if self._state.config.overlap and self._launched_now else 0
        launched = list(self._state.launched)
        inner()
        self.between_halves = False
        require(len(self._state.launched) == stays, f"{len(self._state.launched)} steps stay in flight, not {stays}")
        for step in launched[: len(launched) - stays]:
            for req in requests_of(step):
                is_over = req.to_finish is not None or len(req.output_ids) >= req.max_new_tokens
                require(not (req.is_live and is_over), f"{req.rid} is over with its result, and continues")
            for chunk in step.chunks:
                self._require_is_in_tree(chunk)

    def _require_is_in_tree(self, chunk: Chunk) -> None:
        """Of an ordinary request, and of the first turn of a session: the later ones have a slot."""
        req, config = chunk.req, self._state.config
        is_new = chunk.is_last and req.is_live and not self.prefills(req)
        if not (config.radix_cache and is_new and not req.lent and req.kv_committed_len >= chunk.seq_len):
            return
        pages = chunk.seq_len // config.page_size * config.page_size
        require(
            req.cache_protected_len >= pages,
            f"{pages} tokens of {req.rid} belong in the tree, which has no more than {req.cache_protected_len}",
        )


def requests_of(launched: Launched) -> list[Request]:
    return [*(chunk.req for chunk in launched.chunks), *launched.decodes]
