"""Expectations of runs: short runs that must be possible and end as said, steps that must be refused, states denied.

The states of a ledger are explored whole (`model/expectations.py`). What no set of states shows stands here: that a guard
refuses, that an invariant denies, and what the small machines do, whose counters have no end of states.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from kvproof.model import oracle as right_oracle
from kvproof.spec.machine import MACHINES, Machine
from kvproof.spec.state import NONE, PREFILL, RUNNING, WAITING

Step = tuple[str, dict[str, Any]]

BEGINNINGS = {
    "turn": "open; create origin_len={0} too_long=False logprob=False; match_tree matched_len=0; extend seq_len={0} last=True",
    "request": "arrive origin_len={0}; match_tree matched_len={1}; extend seq_len={0} last=True",
    "chunk_of_3": "arrive origin_len=3; match_tree matched_len=0; extend seq_len={0} last=False",
    "staged": "stage; stage_row; stage_pages size=2",
    "locked_twice": "tree_insert size=3; tree_lock; tree_lock",
}
"""Several steps by one name, `{0}` and `{1}` being the numbers behind it: a session's first turn of so many tokens, prefilled
whole; an ordinary request of so many, of which so many are matched; the first chunk of one; an admission with all that it needs;
a node of the tree with two holders."""

# A run of a machine from its start, and its name. `with`: the configuration, and page size and row width where they are not 1
# and 3. `then`: fields after the run. `refused`: steps that must not be taken next.
EXPECTED = """
ledger: with overlap a turn ends while one result is late, and its slot keeps what was computed
    with: overlap=True
    run: turn 1; result tokens=1; decode; finish finished_len=1
    then: slot_kv_committed_len=2 checkpoint_len=2 slot_held=True
ledger: with overlap a request ends while one result is late
    with: overlap=True
    run: request 1 0; result tokens=1; decode; finish_plain dup_len=2 inserted=True
    then: phase=NONE rows=0
ledger: a result may come late for a turn that is over
    with: overlap=True
    run: open; late_result
    then: is_open=True
ledger: without overlap it may come late for a turn that is queued again
    run: turn 1; result tokens=1; decode; retract; late_result
    then: phase=WAITING
ledger: all whole pages of a request may be copies of what the tree has
    run: request 2 0; result tokens=1; finish_plain dup_len=2 inserted=True
    then: rows=0 locks=0
ledger: none but the locked ones may be copies
    run: request 2 1; result tokens=1; finish_plain dup_len=1 inserted=True
    then: rows=0 locks=0
ledger: no copies are reported of a request that the tree takes nothing of
    run: request 2 1; result tokens=1; finish_plain dup_len=3 inserted=False
    then: rows=0 locks=0
ledger: a request that ended inside a page leaves its whole pages
    with: row_width=4 page_size=2
    run: request 3 0; result tokens=1; finish_plain dup_len=2 inserted=True
    then: rows=0
ledger: more copies than pages are refused
    run: request 2 0; result tokens=1
    then: kv_committed_len=2
    refused: finish_plain dup_len=3 inserted=True; insert dup_len=3 key_len=2
ledger: a queued turn that is aborted leaves the slot
    run: turn 1; result tokens=1; finish finished_len=1; create origin_len=3 too_long=False logprob=False; abort_queued
    then: slot_held=True inflight=False checkpoint_len=2
ledger: also where the slot holds as much as the checkpoint
    with: overlap=True
    run: turn 1; result tokens=1; decode; finish finished_len=1; create origin_len=3 too_long=False logprob=False
    run: abort_queued
    then: slot_held=True slot_kv_committed_len=2 checkpoint_len=2
ledger: a queued turn without a slot is aborted
    run: open; create origin_len=1 too_long=False logprob=False; abort_queued
    then: inflight=False phase=NONE
ledger: a turn that was retracted and is aborted in the queue takes the slot with it
    run: turn 1; result tokens=1; retract
    then: slot_held=True
    refused: abort_queued
ledger: nothing of it stays
    run: turn 1; result tokens=1; retract; abort_retracted
    then: slot_held=False rows=0 inflight=False
ledger: a retracted turn keeps what it asked for
    run: open; create origin_len=1 too_long=False logprob=True; match_tree matched_len=0; extend seq_len=1 last=True
    run: result tokens=1; retract
    then: logprob=True origin_len=1 output_len=1
ledger: a turn may ask for nothing
    run: open; create origin_len=1 too_long=False logprob=False
    then: logprob=False pre_aborted=False origin_len=1
    refused: match_tree matched_len=1
ledger: a match leaves one token to run, and may take all others
    run: arrive origin_len=3; match_tree matched_len=2
    then: prefix_len=2 cache_protected_len=2 matched=True
    refused: match_tree matched_len=3; extend seq_len=2 last=False; extend seq_len=3 last=False; extend seq_len=4 last=True
ledger: a match is of whole pages
    with: row_width=4 page_size=2
    run: arrive origin_len=4
    then: phase=WAITING
    refused: match_tree matched_len=1; match_tree matched_len=3; match_tree matched_len=4
ledger: a chunk cache is not matched
    with: tree=False
    run: arrive origin_len=3
    then: matched=False
    refused: match_tree matched_len=1
ledger: a request has input
    refused: arrive origin_len=0
ledger: a chunk of a session's turn is copied
    run: open; create origin_len=3 too_long=False logprob=False; match_tree matched_len=0; extend seq_len=1 last=False; stash
    then: prefix_len=1 kv_committed_len=1 cache_protected_len=0
    refused: insert dup_len=0 key_len=1
ledger: on a chunk cache any chunk is copied
    with: tree=False
    run: chunk_of_3 1; stash; extend seq_len=2 last=False
    then: prefix_len=1 kv_committed_len=2
    refused: insert dup_len=0 key_len=2
ledger: a chunk that the tree can take is not copied
    run: chunk_of_3 1
    then: phase=PREFILL
    refused: stash
ledger: a chunk may be all copies
    run: chunk_of_3 2; insert dup_len=2 key_len=2
    then: cache_protected_len=2 tree_end=2 row_end=2 prefix_len=2
ledger: an inserted chunk keeps what is inside a page
    with: row_width=5 page_size=2
    run: arrive origin_len=5; match_tree matched_len=0; extend seq_len=3 last=False; insert dup_len=0 key_len=3
    then: cache_protected_len=2 prefix_len=3 tree_end=1 row_end=2
ledger: with overlap a prompt is inserted after the next step was prepared
    with: overlap=True
    run: request 2 0; decode; result tokens=1; insert dup_len=0 key_len=2
    then: cache_protected_len=2 tree_end=2 kv_committed_len=3
    refused: insert dup_len=2 key_len=3
ledger: without overlap nothing is inserted once the next step is prepared
    run: request 2 0; result tokens=1; decode
    then: kv_committed_len=3 pending=1
    refused: insert dup_len=0 key_len=2; insert dup_len=0 key_len=3
ledger: what was refused is answered beside its session
    run: open; pass_by
    then: is_open=True
ledger: beside none nothing is
    refused: pass_by
ledger: a session inserts its prompt
    run: turn 2; result tokens=1; insert dup_len=0 key_len=2
    then: cache_protected_len=2 tree_end=2
ledger: no more than its prompt, and not before a result
    with: overlap=True
    run: turn 1; decode
    then: kv_committed_len=2
    refused: insert dup_len=0 key_len=2; insert dup_len=0 key_len=1; insert dup_len=0 key_len=0
ledger: a later turn reuses all but one token of the slot's
    run: turn 1; result tokens=1; decode; result tokens=1; finish finished_len=1
    run: create origin_len=3 too_long=False logprob=False; match_slot
    then: prefix_len=2 kv_committed_len=2 kv_allocated_len=2 lent=True matched=True slot_held=True
    refused: match_tree matched_len=0; detach
ledger: what the slot holds beyond that is not the turn's
    with: overlap=True
    run: turn 1; result tokens=1; decode; retract; match_slot
    then: prefix_len=1 kv_committed_len=1 kv_allocated_len=1 slot_kv_committed_len=1 slot_kv_allocated_len=1 row_end=1
ledger: a chunk's result is not known when it is launched
    with: overlap=True
    run: chunk_of_3 1
    then: pending=1 prefill_known=False
ledger: once one is known it stays so
    with: overlap=True
    run: chunk_of_3 1; chunk_result; insert dup_len=0 key_len=1; extend seq_len=2 last=False
    then: pending=1 prefill_known=True
ledger: a turn whose input is too long leaves the session and its slot
    run: turn 1; result tokens=1; finish finished_len=1; create origin_len=1 too_long=True logprob=False
    then: pre_aborted=True origin_len=1
    refused: match_slot; match_tree matched_len=0; create origin_len=3 too_long=False logprob=False
ledger: it comes back as an ordinary request
    run: turn 1; result tokens=1; finish finished_len=1; create origin_len=1 too_long=True logprob=False; detach
    then: inflight=False phase=NONE slot_held=True is_open=True checkpoint_len=2
ledger: a too long input is cut, another one only appends
    run: turn 1; result tokens=1; finish finished_len=1
    then: checkpoint_len=2
    refused: create origin_len=2 too_long=True logprob=False; create origin_len=2 too_long=False logprob=False
ledger: a closed session is not closed again
    refused: close; late_result
ledger: an idle session neither refuses a turn nor defers a close
    run: open
    refused: refuse; defer_close
ledger: no turn is admitted while a close waits
    run: turn 1; defer_close; result tokens=1; finish finished_len=1
    then: closing=True inflight=False
    refused: create origin_len=3 too_long=False logprob=False
ledger: without overlap no turn ends while its result is late
    run: turn 1; result tokens=1; decode
    then: pending=1
    refused: finish finished_len=1
ledger: without overlap no request ends while its result is late
    run: request 1 0; result tokens=1; decode
    then: pending=1
    refused: finish_plain dup_len=0 inserted=False
ledger: with overlap a turn does not end while two results are late
    with: overlap=True
    run: turn 1; decode; result tokens=1; decode
    then: pending=2 output_len=1
    refused: finish finished_len=1; retract
ledger: with overlap a request does not end while two results are late
    with: overlap=True
    run: request 1 0; decode; result tokens=1; decode
    then: pending=2
    refused: finish_plain dup_len=0 inserted=False
ledger: with overlap a request may end between chunks, whose results need not be told
    with: overlap=True
    run: chunk_of_3 1; insert dup_len=0 key_len=1; extend seq_len=2 last=False
    run: finish_plain dup_len=0 inserted=False
    then: phase=NONE rows=0
ledger: with overlap a retracted turn's step in flight still writes its KV
    with: overlap=True
    run: turn 1; result tokens=1; decode; retract
    then: slot_kv_committed_len=2 kv_valid=2
ledger: without overlap a retracted turn's prepared step never runs
    run: turn 1; result tokens=1; decode; retract
    then: slot_kv_committed_len=2 kv_valid=1
ledger: with overlap a turn may be retracted before the result of its prefill, and what its slot holds is its own
    with: overlap=True
    run: turn 2; retract
    then: slot_kv_committed_len=2 checkpoint_len=0 output_len=0 phase=WAITING
    refused: abort_queued
ledger: not one of a single token, of which the next match could keep nothing
    with: overlap=True
    run: turn 1
    refused: retract
ledger: not without overlap, where a result comes before the next step
    run: turn 2
    refused: retract
ledger: matched again, it may hold no more than the turn before it left, and is aborted as if it never ran
    with: overlap=True
    run: turn 1; result tokens=1; decode; finish finished_len=1; create origin_len=3 too_long=False logprob=False
    run: match_slot; extend seq_len=3 last=True; retract; match_slot; abort_queued
    then: slot_kv_committed_len=2 kv_valid=2 checkpoint_len=2 phase=NONE slot_held=True
ledger: a chunk's result comes once, after its launch
    with: overlap=True
    run: chunk_of_3 1; chunk_result
    then: pending=0 prefill_known=True
    refused: chunk_result
ledger: a chunk may be launched before the result of the one before is in
    with: overlap=True
    run: chunk_of_3 1; insert dup_len=0 key_len=1; extend seq_len=2 last=False
    then: pending=2 prefill_known=False
ledger: the last chunk's result is the only one to wait for
    with: overlap=True
    run: chunk_of_3 1; insert dup_len=0 key_len=1; extend seq_len=2 last=False; chunk_result
    run: insert dup_len=1 key_len=2; extend seq_len=3 last=True
    then: phase=RUNNING pending=1 prefill_known=False
ledger: without overlap no chunk's result is waited for
    run: chunk_of_3 1
    then: phase=PREFILL pending=0
    refused: chunk_result
ledger: without overlap no turn is over before its result is in
    run: open
    refused: result_of_ended
ledger: no result of another turn comes to an ordinary request
    with: overlap=True
    run: request 1 0
    refused: result_of_ended
ledger: no more is kept than was generated
    run: turn 1; result tokens=1
    then: output_len=1
    refused: finish finished_len=2
ledger: a speculating turn waits for its result and gives at least one token
    with: speculation=1
    run: turn 1
    then: pending=1
    refused: verify tokens=1
ledger: a round is verified as soon as one result is in, and may give all its drafts and one token
    with: speculation=1
    run: turn 1; result tokens=1; verify tokens=2
    then: kv_committed_len=3 kv_allocated_len=3 output_len=3 pending=0
    refused: decode; prepare_round allocated_len=6; verify tokens=1
ledger: a turn that speculates takes no plain step
    with: row_width=6 speculation=1
    run: turn 1; result tokens=1
    then: kv_allocated_len=1
    refused: decode; prepare_round allocated_len=4
ledger: a round may give one token, and its drafts go back
    with: speculation=1
    run: turn 1; result tokens=1; verify tokens=1
    then: kv_committed_len=2 kv_allocated_len=2 row_end=2 output_len=2
ledger: a round in advance may give all its drafts and one token, and neither decodes nor is verified
    with: row_width=8 overlap=True speculation=2 drafts=2
    run: turn 1; result tokens=1; prepare_round allocated_len=5; result tokens=3
    then: kv_committed_len=4 kv_allocated_len=5 output_len=4 pending=0
    refused: decode; verify tokens=1
ledger: without speculation a step gives one token
    run: turn 1; result tokens=1; decode
    then: kv_committed_len=2
    refused: result tokens=2; verify tokens=1; prepare_round allocated_len=3
ledger: results of chunks come one by one
    with: overlap=True
    run: chunk_of_3 1; insert dup_len=0 key_len=1; extend seq_len=2 last=False; chunk_result
    then: pending=1 prefill_known=True
ledger: a retracted turn that speculates waits for its result again
    with: row_width=6 speculation=1
    run: turn 1; result tokens=1; retract; match_slot; extend seq_len=2 last=True
    then: pending=1 output_len=1
    refused: verify tokens=1
ledger: a round gives at least one token, at most its drafts and one
    with: row_width=6 speculation=1
    run: turn 1; result tokens=1
    then: pending=0
    refused: verify tokens=0; verify tokens=3
ledger: a round reserves its drafts and the bonus, what is reserved stays
    with: row_width=8 overlap=True speculation=2 drafts=2
    run: turn 1; result tokens=1; prepare_round allocated_len=5
    then: kv_committed_len=2 kv_allocated_len=5 pending=1 row_end=5
    refused: prepare_round allocated_len=4; prepare_round allocated_len=9
ledger: a round that has enough allocates nothing more
    with: row_width=8 overlap=True speculation=2 drafts=2
    run: turn 1; result tokens=1; prepare_round allocated_len=7; prepare_round allocated_len=7
    then: kv_committed_len=3 kv_allocated_len=7 row_end=7
ledger: a round in flight may move the next one by all its drafts
    with: row_width=8 overlap=True speculation=2 drafts=2
    run: turn 1; result tokens=1; prepare_round allocated_len=5; prepare_round allocated_len=7
    then: kv_committed_len=3 kv_allocated_len=7 pending=2
    refused: prepare_round allocated_len=8; result tokens=4
ledger: nothing less than that is enough while a round is in flight
    with: row_width=8 overlap=True speculation=2 drafts=2
    run: turn 1; result tokens=1; prepare_round allocated_len=4
    then: kv_allocated_len=4
    refused: prepare_round allocated_len=6
ledger: a chunk is inserted as it is, and gives no result without overlap
    run: chunk_of_3 2
    then: kv_committed_len=2
    refused: insert dup_len=0 key_len=1; chunk_result
ledger: with overlap too a chunk is inserted as it is
    with: overlap=True
    run: chunk_of_3 2
    then: kv_committed_len=2
    refused: insert dup_len=0 key_len=1
ledger: a tree that answers in parts of pages is refused
    with: row_width=4 page_size=2
    run: request 3 0; result tokens=1
    then: output_len=1
    refused: insert dup_len=1 key_len=3; finish_plain dup_len=1 inserted=True
ledger: a tree that lost a locked prefix is refused
    run: request 2 1; result tokens=1
    then: cache_protected_len=1
    refused: insert dup_len=0 key_len=2; finish_plain dup_len=0 inserted=True
ledger: a chunk cache takes nothing and matches nothing
    with: tree=False
    run: request 2 0; result tokens=1
    then: output_len=1
    refused: insert dup_len=0 key_len=2; finish_plain dup_len=0 inserted=True
ledger: whole pages leave the window, and one page more than the window stays
    with: row_width=6 page_size=2 window=1
    run: request 6 0; evict_window pre_len=6
    then: swa_evicted_seqlen=2 window_start=1

admission: an admission begins with a lock
    run: stage
    then: staging=True locks=1 held=1
admission: an admission stages a lock, a row and pages
    run: staged
    then: staging=True locks=1 rows=1 pages=2 held=4
    refused: stage; stage_row
admission: an admission that succeeds hands over all and ends
    run: staged; admit
    then: staging=False locks=0 rows=0 pages=0 held=0
admission: one page is enough
    run: stage; stage_row; stage_pages size=1; admit
    then: staging=False
admission: an admission that is cancelled gives back all and ends
    run: staged; cancel_admission
    then: staging=False locks=0 rows=0 pages=0 held=0
admission: nothing is staged outside an admission
    refused: stage_row; stage_pages size=1; cancel_admission; admit
admission: no pages and no end without a row
    run: stage
    refused: stage_pages size=1; admit
admission: no end without pages
    run: stage; stage_row
    then: rows=1
    refused: stage_pages size=0; admit

deferred: a row names a page
    then: row_page=1 listed=0 meant=0
    refused: carry_out_free
deferred: a free that waits keeps its page when the row gets another
    run: defer_free; overwrite_row page=2
    then: waits=True row_page=2 listed=1 meant=1
    refused: defer_free; overwrite_row page=0
deferred: a free that was carried out waits no more
    run: defer_free; overwrite_row page=2; carry_out_free; overwrite_row page=1
    then: waits=False row_page=1 listed=0 meant=0
    refused: carry_out_free

progress: a request waits for its prefill
    then: running=False output=0 retracts=0
    refused: decode_once; force_retract
progress: a prefilled request is not retracted before it decodes
    run: prefill_again
    then: running=True decoded=False
    refused: force_retract; prefill_again
progress: a decode step gives one token
    run: prefill_again; decode_once
    then: decoded=True output=1
progress: a retracted request keeps its output and is prefilled again
    run: prefill_again; decode_once; force_retract; prefill_again
    then: running=True decoded=False output=1 retracts=1
    refused: force_retract
progress: a retracted request waits
    run: prefill_again; decode_once; force_retract
    then: running=False decoded=False

tree: nothing happens to a node that is not there
    then: present=False
    refused: tree_lock; tree_unlock; tree_evict; tree_insert size=0
tree: a new node is unlocked, even of one page
    run: tree_insert size=1
    then: present=True pages=1 evictable=1 protected=0
    refused: tree_insert size=1; tree_unlock; tree_split size=1
tree: a node that is locked twice is protected once
    run: locked_twice
    then: lock_ref=2 holders=2 evictable=0 protected=3
    refused: tree_evict; tree_split size=0; tree_split size=3; tree_split size=4
tree: a split keeps the locks, one page is enough for a part
    run: locked_twice; tree_split size=1
    then: pages=1 lock_ref=2 protected=3 rest_protected=2 rest_evictable=0
tree: the last holder makes the pages evictable, and they are evicted
    run: locked_twice; tree_unlock; tree_unlock; tree_evict
    then: present=False pages=0 lock_ref=0 holders=0 evictable=0 protected=0
pool: what is charged is taken from the free list first, the rest is evicted
    run: pool_give_back pages=1; pool_unlock pages=2; pool_admit charge=2 locked=0; pool_take pages=2
    then: free=0 evictable=1 charge=0
    refused: pool_take pages=1; pool_admit charge=2 locked=0
pool: what an admission locks it cannot be charged
    run: pool_unlock pages=2
    refused: pool_admit charge=1 locked=2; pool_admit charge=0 locked=3; pool_admit charge=0 locked=-1
pool: what was charged stays, and no more is taken
    run: pool_give_back pages=2; pool_admit charge=1 locked=0; pool_charge_others others=1
    then: free=2 charge=1 others=1
    refused: pool_take pages=2; pool_admit charge=0 locked=0; pool_charge_others others=2
    refused: pool_elsewhere free=0 evictable=1; pool_elsewhere free=3 evictable=-1; pool_elsewhere free=-1 evictable=3
    refused: pool_give_back pages=-1; pool_unlock pages=-1
pool: others free and lock as long as what was charged stays
    run: pool_give_back pages=2; pool_admit charge=1 locked=0; pool_elsewhere free=0 evictable=1
    then: free=0 evictable=1 charge=1
batch: what a step in flight uses goes to the next batch, not to its own
    run: batch_give; batch_give_back
    then: given=False used=1 launches=1
    refused: batch_give
batch: who got it behind a step in flight is launched once in each batch
    run: batch_give; batch_give_back; batch_next; batch_give
    then: given=True batch=2 used=2 launches=1
    refused: batch_launch
batch: a turn keeps it from batch to batch
    run: batch_give; batch_next; batch_launch
    then: given=True batch=2 used=2 launches=1
tree: other nodes have pages or none
    run: tree_elsewhere evictable_pages=2 protected_pages=1; tree_elsewhere evictable_pages=0 protected_pages=0
    then: rest_evictable=0 rest_protected=0 evictable=0 protected=0
    refused: tree_elsewhere evictable_pages=-1 protected_pages=1; tree_elsewhere evictable_pages=1 protected_pages=-1
    refused: tree_elsewhere evictable_pages=-1 protected_pages=-1
"""

# States that the invariants of the machine must deny: its start with some fields changed.
DENIED_STATES = """
admission: a lock that no admission holds: locks=1 held=1
admission: a row that no admission holds: rows=1 held=1
admission: pages that no admission holds: pages=1 held=1
batch: two launches of one batch: launches=2 used=1
batch: a launch of no batch: launches=1
batch: fewer launches than none: launches=-1 used=1
batch: used by a batch that comes later: used=2
batch: a batch without a number: batch=0
pool: a charge for which there is nothing: charge=1
pool: a charge of others for which there is nothing: others=1
pool: fewer pages than none on the free list: free=-1 evictable=1
pool: fewer pages than none in the tree: free=1 evictable=-1
deferred: a free that waits for another page than was meant: waits=True listed=2 meant=1
tree: a node without pages: present=True
tree: pages of a node that is not there: pages=1
tree: pages without a node: pages=1 evictable=1
tree: a lock that nobody holds: present=True pages=1 lock_ref=1 protected=1
tree: an evictable page that is in no node: evictable=1
tree: a protected page that is in no node: protected=1
"""


@dataclass(frozen=True)
class Expected:
    machine: str
    name: str
    run: tuple[Step, ...]
    then: Mapping[str, Any]
    refused: tuple[Step, ...]
    config: Mapping[str, Any]


@dataclass(frozen=True)
class Denied:
    machine: str
    name: str
    fields: Mapping[str, Any]


def _expected(text: str) -> Expected:
    (machine, name), *parts = (line.strip().split(": ") for line in text.splitlines() if line)
    said: defaultdict[str, list[str]] = defaultdict(list)
    for key, words in parts:
        said[key].append(words)
    run, refused = (tuple(_steps("; ".join(said[key]))) for key in ("run", "refused"))
    then, config = (_values(" ".join(said[key]).split()) for key in ("then", "with"))
    return Expected(machine, name, run, then, refused, {"page_size": 1, "row_width": 3, **config})


def _steps(text: str) -> Iterator[Step]:
    for name, *words in (step.split() for step in text.split("; ") if step):
        if name in BEGINNINGS:
            yield from _steps(BEGINNINGS[name].format(*words))
        else:
            yield name, _values(words)


def _values(words: Sequence[str]) -> dict[str, Any]:
    known = {"True": True, "False": False, "NONE": NONE, "WAITING": WAITING, "PREFILL": PREFILL, "RUNNING": RUNNING}
    return {name: known[value] if value in known else int(value) for name, value in (word.split("=") for word in words)}


RUNS = tuple(map(_expected, re.split(r"\n(?=\w)", EXPECTED.strip())))
DENIED = tuple(
    Denied(machine, name, _values(fields.split()))
    for machine, name, fields in (line.split(": ") for line in DENIED_STATES.strip().splitlines())
)


def unexpected(machines: Sequence[Machine] = MACHINES, oracle: ModuleType = right_oracle) -> Iterator[str]:
    """What is not as expected, as sentences."""
    of = {m.name: m for m in machines}
    for expected in RUNS:
        if expected.machine in of and (failure := _failure(expected, of[expected.machine], oracle)):
            yield f"{expected.name}: {failure}"
    for denied in DENIED:
        if denied.machine in of and _is_allowed(denied, of[denied.machine], oracle):
            yield f"{denied.name}: no invariant denies it"


def _failure(expected: Expected, machine: Machine, oracle: ModuleType) -> str:
    rules = oracle.Oracle.of(actions=machine.actions, **expected.config)
    state = machine.start(rules.d)
    for name, params in expected.run:
        outcome = _taken(rules, state, name, params)
        if outcome is None:
            return f"{name} is refused"
        state = outcome.after
    for name, value in expected.then.items():
        if getattr(state, name) != value:
            return f"{name} is {getattr(state, name)}, not {value}"
    for name, params in expected.refused:
        if _taken(rules, state, name, params) is not None:
            return f"{name} is not refused"
    return ""


def _taken(rules: Any, state: Any, name: str, params: dict[str, Any]) -> Any:
    """The outcome of the step, or None where its rule does not apply or a guard fails."""
    action = rules.actions[name]
    if not action.applies(rules.d, state):
        return None
    outcome = rules.step(action, state, params)
    return None if outcome.failed_guards else outcome


def _is_allowed(denied: Denied, machine: Machine, oracle: ModuleType) -> bool:
    d = oracle.Oracle.of(1, 3).d
    state = machine.start(d).but(**denied.fields)
    return all(invariant.holds(d, state) for invariant in machine.all_invariants.values())
