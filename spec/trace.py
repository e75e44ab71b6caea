"""The trace: what a recorder writes and a replay reads, one JSON object a line.

A trace is a header, then events in the order in which they happened (`seq` counts from 0), then one terminal record.
A file without its terminal record is incomplete: a crash must never look like a pass. Order comes from `seq` and
`cause`, never from clocks. Lengths are in tokens, pages are page ids (KV index // page_size). Neither token ids nor
prompts are ever recorded.

`Observed` holds what the recorder saw after the event, in the field names of the ledger (`spec/state.py`). A field that
is absent was not observed, which is not the same as false: what a recorder can never see it names in `Header.gaps`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

TRACE_FORMAT = 1

EventName = Literal[
    "open",
    "create",
    "arrive",
    "match",
    "extend",
    "stash",
    "insert",
    "decode",
    "result",
    "verify",
    "finish",
    "retract",
    "abort",
    "close",
    "evict",
    "window",
    "check",
    "ask_abort",
]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Config(_Strict):
    """The configuration that fixes the arithmetic. The pool's page ids run from 1 to pool_pages; page 0 is padding."""

    page_size: int = Field(ge=1, description="tokens per page")
    pool_pages: int = Field(ge=1, description="pages that can be handed out")
    rows: int = Field(ge=1, description="rows of req_to_token that can be handed out")
    row_width: int = Field(ge=1, description="token positions of one row")
    chunked_prefill_size: int | None = Field(default=None, description="tokens of one prefill chunk; null: off")
    overlap: bool = Field(default=False, description="a step is prepared before the last result is processed")
    speculation: Literal[0, 1, 2] = Field(default=0, description="0: none; 1: v1; 2: v2, which overlaps")
    drafts: int = Field(default=1, ge=1, description="draft tokens of one speculative round")
    window: int = Field(default=0, ge=0, description="sliding window in tokens; 0: full attention")
    window_pages: int = Field(
        default=0, ge=0, description="pages of the window pool that can be handed out; 0: the trace does not name them"
    )
    tree: bool = Field(default=True, description="radix tree; else a chunk cache")


class Producer(_Strict):
    name: str = Field(description="who wrote the trace, e.g. kvproof-reference or sglang")
    version: str
    target: str = Field(description="what was driven, e.g. reference or sglang")


class Header(_Strict):
    record: Literal["header"] = "header"
    format: int = TRACE_FORMAT
    spec: str = Field(description="version of the specification that the recorder was written for")
    producer: Producer
    config: Config
    scenario: str | None = None
    gaps: tuple[str, ...] = Field(
        default=(), description="what this recorder cannot see: sentences of the table of gaps, others are refused"
    )
    known_deviations: tuple[str, ...] = Field(
        default=(),
        description="ids of deviations from the rules that the profile of its release lists; others are refused",
    )
    extra: dict[str, Any] = Field(default_factory=dict, description="free-form settings of the producer")


class Observed(_Strict):
    """Values seen right after an event, in the ledger's names; tokens unless a name says otherwise."""

    inflight: bool | None = Field(default=None, description="the session's in-flight marker")
    closing: bool | None = Field(default=None, description="a close waits for the turn in flight")
    checkpoint_len: int | None = Field(default=None, description="tokens of the last turn that finished with success")
    slot_held: bool | None = Field(default=None, description="the session's slot has a row")
    slot_kv_committed_len: int | None = None
    slot_kv_allocated_len: int | None = None
    slot_cache_protected_len: int | None = None
    slot_swa_evicted_seqlen: int | None = None
    attached: bool | None = Field(default=None, description="the turn belongs to its session")
    lent: bool | None = Field(default=None, description="the turn runs on the row of the session's slot")
    prefix_len: int | None = None
    kv_committed_len: int | None = None
    kv_allocated_len: int | None = None
    cache_protected_len: int | None = None
    swa_evicted_seqlen: int | None = None
    output_len: int | None = Field(default=None, description="output tokens known so far")


class Terms(_Strict):
    """The terms of the memory check (domain page, section 3), in pages, as the implementation itself computes them."""

    available: int
    evictable: int
    protected: int
    session_held: int
    uncached: int
    total: int


class Event(_Strict):
    record: Literal["event"] = "event"
    seq: int = Field(ge=0)
    cause: int | None = Field(default=None, description="seq of the event whose late result this is")
    step: int | None = Field(
        default=None,
        description="scheduler step: launches (extend, decode) that follow each other with one number are one batch",
    )
    action: EventName
    session: str | None = None
    turn: str | None = Field(default=None, description="request id")
    row: int | None = Field(default=None, description="row of req_to_token that the turn, or the closed slot, uses")
    params: dict[str, int | bool | None] = Field(default_factory=dict)
    alloc: tuple[int, ...] = Field(default=(), description="pages taken from the free list, in row order")
    free: tuple[int, ...] = Field(default=(), description="pages handed to the free list")
    shared: tuple[int, ...] | None = Field(
        default=None, description="pages of the tree-owned prefix that this event wrote into the row, from position 0"
    )
    window_alloc: tuple[int, ...] = Field(
        default=(), description="pages of the window pool, one for each page of `alloc`, in the same order"
    )
    window_free: tuple[int, ...] = Field(default=(), description="pages handed back to the window pool")
    after: Observed = Field(default_factory=Observed)
    terms: Terms | None = Field(default=None, description="only on check")
    free_list: tuple[int, ...] | None = Field(
        default=None, description="only on check: every free page, where it was cheap to list"
    )
    window_terms: Terms | None = Field(default=None, description="only on check: the same terms of the window pool")
    window_free_list: tuple[int, ...] | None = Field(
        default=None, description="only on check: every free page of the window pool, where it was cheap to list"
    )


FINISHED, STOPPED = "finished", "stopped"
"""Reasons of an end record after which nothing is missing: all turns are over; or somebody stopped the recorded server, turns or
not. Any other reason is how the run broke off."""


class End(_Strict):
    record: Literal["end"] = "end"
    events: int = Field(ge=0, description="number of events written")
    dropped: int = Field(default=0, ge=0, description="events that the recorder had to drop")
    reason: str = Field(
        default=FINISHED,
        description=f"{FINISHED}: every turn is over, and no close waits; {STOPPED}: the server was stopped, whatever ran; "
        "else how the run broke off",
    )
    actions: dict[str, int] | None = Field(
        default=None, description="number of events of each action; absent: it is not shown that the trace is complete"
    )
    sha256: str | None = Field(
        default=None, description="of all bytes before this record, as hexadecimal digits; of a packed trace, unpacked"
    )


Record = Annotated[Header | Event | End, Field(discriminator="record")]
RECORD: TypeAdapter[Header | Event | End] = TypeAdapter(Record)
