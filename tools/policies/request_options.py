"""What a request asked for is what it gets: its output's length, its priority, and whether it was too long or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from policies.broken import require, tap

if TYPE_CHECKING:
    from kvproof.impl.scheduler import Scheduler


class RequestOptions:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._config = scheduler.config
        tap(scheduler, "submit", self._submit)
        tap(scheduler, "submit_turn", self._submit_turn)

    def _submit(self, inner: Callable[..., None], rid: str, token_ids: list[int], asked: int, **how: Any) -> None:
        inner(rid, token_ids, asked, **how)
        self._require_as_asked(rid, len(token_ids), asked, **how)

    def _submit_turn(
        self, inner: Callable[..., bool], session_id: str, rid: str, new_tokens: list[int], asked: int, **how: Any
    ) -> bool:
        session = self._scheduler.state.controller.get(session_id)
        input_len, is_busy = len(session.checkpoint_ids) + len(new_tokens), session.inflight
        admitted = inner(session_id, rid, new_tokens, asked, **how)
        require(
            admitted != is_busy, f"{rid} is {'admitted' if admitted else 'refused'} by a session that is not for it"
        )
        if admitted:
            self._require_as_asked(rid, input_len, asked, **how)
        else:
            require(not self._scheduler.outcomes[rid].finished, f"{rid} is refused, and told to have finished")
        return admitted

    def _require_as_asked(
        self, rid: str, input_len: int, asked: int, *, logprob: bool = False, priority: int = 0
    ) -> None:
        req = next(req for req in self._scheduler.state.waiting if req.rid == rid)
        config, longest = self._config, self._config.max_input_len
        too_long = input_len > longest
        require(
            req.is_too_long == too_long, f"{rid} has {input_len} tokens of at most {longest}, and is judged wrongly"
        )
        room = config.max_total_len - config.overshoot - (1 if too_long else input_len)
        right = min(asked, room)
        require(
            req.max_new_tokens == right,
            f"{rid} may put out {req.max_new_tokens} tokens: {asked} asked for, room for {room}",
        )
        require(req.priority == priority, f"{rid} has priority {req.priority}, and was sent with {priority}")
        wants_logprob = req.logprob_start_len is not None
        require(wants_logprob == logprob, f"{rid} was sent {'with' if logprob else 'without'} a wish for logprobs")
