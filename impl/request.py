"""One request (its tokens, its place in the cache, how it ends), and the session that it may be a turn of."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvproof.impl.pools import NO_INDICES, KVIndices
from kvproof.impl.radix import TreeNode

PAD_TOKEN = 0
"""What is left of an input that is too long: the request still makes one forward, as every request does."""

TOO_LONG = "input too long"


@dataclass(eq=False)
class Request:
    rid: str
    origin_input_ids: list[int]
    max_new_tokens: int
    session: Session | None = None
    """The session that this turn belongs to; None for an ordinary request."""
    logprob_start_len: int | None = None
    """First input position whose logprob is asked for; None: none is."""
    priority: int = 0
    """The least is retracted first."""
    to_finish: str | None = None
    """Why this request will be aborted when its next result is in."""
    output_ids: list[int] = field(default_factory=list)
    fill_ids: list[int] = field(default_factory=list)
    """The tokens that prefill has to cover: input, and output of a request that was retracted."""

    is_live: bool = False
    """In the batch: running, or between two chunks. The result of a request that is not comes too late."""
    is_chunked: int = 0
    """Its chunks in the middle of the input whose results are still to come: those give no token."""
    results_due: int = 0
    """Launches that carry this request and whose results are still to come."""

    was_retracted: bool = False
    """It ran, so that its session's slot holds KV of its own."""

    req_pool_idx: int | None = None
    kv_committed_len: int = 0
    kv_allocated_len: int = 0
    cache_protected_len: int = 0
    swa_evicted_seqlen: int = 0
    """Where the row's window pages begin, if window eviction has passed cache_protected_len; see window_eviction.py."""
    prefix_indices: KVIndices = field(default_factory=lambda: NO_INDICES)
    """KV indices of the leading tokens that the next extend reuses."""
    last_node: TreeNode | None = None
    """The tree node that this request locks; None on a turn whose slot holds the lock."""
    lent: bool = False
    """The row is the slot's."""

    @property
    def prefix_len(self) -> int:
        return len(self.prefix_indices)

    @property
    def is_too_long(self) -> bool:
        return self.to_finish == TOO_LONG

    def is_done(self) -> bool:
        return self.to_finish is not None or len(self.output_ids) >= self.max_new_tokens

    def init_next_round_input(self) -> None:
        self.fill_ids = self.origin_input_ids + self.output_ids

    def abort_before_running(self, reason: str) -> None:
        """Cut the input to one token: the request passes through prefill once, so every stage sees it end (#21875)."""
        self.to_finish = reason
        self.origin_input_ids = [PAD_TOKEN]

    def cut_output(self) -> None:
        """A speculative round may bring more tokens than were asked for: the rest is not the request's (#22897).

        An ordinary request hands them to the tree before, as they are tokens with KV like others.
        """
        del self.output_ids[self.max_new_tokens :]

    def reset_for_retract(self) -> None:
        """Back to the queue: the tokens stay, every length and every hold on the cache is gone."""
        self.is_live = False
        self.is_chunked = 0
        self.was_retracted = True
        self.req_pool_idx = None
        self.kv_committed_len = 0
        self.kv_allocated_len = 0
        self.cache_protected_len = 0
        self.swa_evicted_seqlen = 0
        self.prefix_indices = NO_INDICES
        self.last_node = None
        self.lent = False


@dataclass(eq=False)
class Session:
    session_id: str
    turn_in_flight: Request | None = None
    """The one admitted turn that has not ended: create sets it, finish and abort clear it, a retract keeps it."""
    turn_before: Request | None = None
    """The last turn that ended while a launched step carried it."""
    checkpoint_ids: list[int] = field(default_factory=list)
    """The tokens of the last turn that finished with success, input and output: what the next turn appends to."""
    close_on_finish: bool = False

    @property
    def inflight(self) -> bool:
        return self.turn_in_flight is not None

    def finish_req(self, req: Request) -> None:
        self.checkpoint_ids = req.origin_input_ids + req.output_ids
        self._clear_marker()

    def abort_req(self) -> None:
        """The turn is over without success: the checkpoint stays (#22790)."""
        self._clear_marker()

    def awaits_late_result(self) -> bool:
        """A step in flight still reads and writes the row of the turn before."""
        return self.turn_before is not None and self.turn_before.results_due > 0

    def _clear_marker(self) -> None:
        if self.turn_in_flight is not None and self.turn_in_flight.results_due:
            self.turn_before = self.turn_in_flight
        self.turn_in_flight = None
