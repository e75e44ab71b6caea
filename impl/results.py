"""Results: what the forward of a launched step gave, request by request.

With overlap they come one step late. The result of a request that ended or was retracted meanwhile changes no length.
"""

from __future__ import annotations

from kvproof.impl.chunk_cache import ceil_align
from kvproof.impl.page_moves import Moved
from kvproof.impl.prefill import Prefill
from kvproof.impl.request import Request
from kvproof.impl.request_exit import RequestExit
from kvproof.impl.state import Chunk, EngineState, Launched


class Results:
    def __init__(self, state: EngineState, exits: RequestExit, prefill: Prefill) -> None:
        self.state = state
        self.exits = exits
        self.prefill = prefill

    def process(self, step: Launched) -> None:
        tokens = step.launch.tokens()
        for chunk, new in zip(step.chunks, tokens, strict=False):
            self.chunk_result(chunk, new)
        rounds = tokens[len(step.chunks) :]
        if self.state.config.speculation == 1:
            for req, new, draft_pages in zip(step.decodes, rounds, step.draft_pages, strict=True):
                self.verified_round(req, new, draft_pages)
        else:
            for req, new in zip(step.decodes, rounds, strict=True):
                self.round_result(req, new)

    def chunk_result(self, chunk: Chunk, tokens: list[int]) -> None:
        """Only the end of a prompt gives a token: the one that a part of it predicts is the prompt's own next one."""
        req = chunk.req
        req.results_due -= 1
        if not req.is_live:
            self.late_result(req, len(tokens) if chunk.is_last else 0)
        elif req.is_chunked:
            req.is_chunked -= 1
            self._take_no_token(req)
        else:
            self.note_result(req, tokens)
            if req.is_done():
                self.exits.end(req)
            elif self.state.cache.inserts_prompt(req):
                self.prefill.insert(req)

    def round_result(self, req: Request, tokens: list[int]) -> None:
        """One token; with speculation v2 the accepted drafts and the bonus."""
        req.results_due -= 1
        if not req.is_live:
            self.late_result(req, len(tokens))
            return
        self.resolve(req, len(tokens))
        self.note_result(req, tokens)
        if req.is_done():
            self.exits.end(req)

    def resolve(self, req: Request, accept_len: int) -> None:
        """The round's own token was claimed when it was prepared; the accepted drafts come to it (#22651)."""
        req.kv_committed_len += accept_len - 1

    def late_result(self, req: Request, tokens: int) -> None:
        """It comes for a request that does not run any more: nothing is left to do (sglang-jax #994)."""
        if tokens:
            self.state.reporter.late_result(req, tokens)

    def note_result(self, req: Request, tokens: list[int]) -> None:
        req.output_ids += tokens
        self.state.reporter.result(req, len(tokens))

    def verified_round(self, req: Request, tokens: list[int], draft_pages: Moved) -> None:
        """Speculation v1: commit the accepted drafts and the bonus, and free the rejected tail."""
        state = self.state
        req.results_due -= 1
        assert (
            req.req_pool_idx is not None
        )  # nothing ends between the launch and the result of a step that does not overlap
        req.output_ids += tokens
        req.kv_committed_len += len(tokens)
        tail = ceil_align(req.kv_committed_len, state.config.page_size)
        state.cache.free_kv(req.req_pool_idx, tail, req.kv_allocated_len)
        req.kv_allocated_len = req.kv_committed_len
        state.reporter.verify(req, len(tokens), draft_pages)
        if req.is_done():
            self.exits.end(req)

    def _take_no_token(self, req: Request) -> None:
        """It is reported where it is a step of its own: with overlap, and while the request is still between two chunks."""
        if self.state.config.overlap and req is self.state.chunked_req:
            self.state.reporter.result(req, 0)
        if req.to_finish is not None:
            self.exits.end(req)
