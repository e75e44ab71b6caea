"""Rules that write ghost fields: what really happened is replaced by what ought to have happened."""

from __future__ import annotations

from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.domain import Domain, smaller
from kvproof.spec.effects import DropRow, Forget, Free, FreeWindow, Insert, Lock, Share, Take, TakeRow, Unlock, Write
from kvproof.spec.state import WAITING, Ledger
from referee.cases import Variants
from referee.variants.changes import built_in, with_fields, without

GHOSTS = Variants("a rule writes ghost fields")


@GHOSTS.wrong("finish", must="refused: only effects write ghosts")
def finish_claims_its_free(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The tail of the row is declared gone and never freed: its pages are lost."""
    right = without(built_in("finish", d, s, p), Free)
    target = s.origin_len + p.finished_len
    end = d.where(target <= s.kv_allocated_len, d.ceil_pages(target), s.row_end)
    return with_fields(right, row_end=end, window_start=smaller(d, s.window_start, end))


@GHOSTS.wrong("match_slot", must="refused: only effects write ghosts")
def match_claims_its_free(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The orphaned tail is declared gone (sglang #22862): its pages are overwritten in the row and never freed."""
    right = without(built_in("match_slot", d, s, p), Free)
    end = d.ceil_pages(right.after.prefix_len)
    return with_fields(right, row_end=end, window_start=smaller(d, s.window_start, end))


@GHOSTS.wrong("abort_first", must="refused: only effects write ghosts")
def abort_claims_its_release(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An abort returns nothing and sets every count to zero: row, pages and lock are lost."""
    nothing = {"rows": 0, "locks": 0, "row_end": 0, "tree_end": 0, "window_start": 0, "kv_valid": d.zero}
    return with_fields(without(built_in("abort_first", d, s, p), Free, Unlock, DropRow), **nothing)


@GHOSTS.wrong("close", must="refused: only effects write ghosts")
def close_claims_its_release(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A close returns nothing and sets every count to zero: the session's pages are lost."""
    nothing = {"rows": 0, "locks": 0, "row_end": 0, "tree_end": 0, "window_start": 0, "kv_valid": d.zero}
    return with_fields(without(built_in("close", d, s, p), Free, Unlock, DropRow), **nothing)


@GHOSTS.wrong("finish_plain", must="refused: only effects write ghosts")
def finish_claims_its_row(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The row of an ordinary request is not returned, only counted as returned: rows run out."""
    right = without(built_in("finish_plain", d, s, p), DropRow, Free, Insert)
    nothing = {"rows": 0, "row_end": 0, "tree_end": 0, "window_start": 0, "kv_valid": d.zero}
    return with_fields(right, **nothing)


@GHOSTS.wrong("finish_plain", must="refused: only effects write ghosts")
def finish_claims_its_lock(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The tree lock is not undone, only counted as undone: the prefix can never be evicted."""
    return with_fields(without(built_in("finish_plain", d, s, p), Unlock), locks=0)


@GHOSTS.wrong("extend", must="refused: only effects write ghosts")
def extend_claims_its_lock(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The matched prefix is counted as locked and is not: the tree evicts what the request reads."""
    return with_fields(without(built_in("extend", d, s, p), Lock), locks=1)


@GHOSTS.wrong("extend", must="refused: only effects write ghosts")
def extend_claims_its_forward(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The tokens of a chunk count as computed and no forward runs: the answer follows from noise."""
    first = d.every(s.phase == WAITING, d.no(s.lent))
    right = without(built_in("extend", d, s, p), Write, TakeRow, Take, Lock, Share)
    return with_fields(
        right,
        rows=1,
        locks=1,
        row_end=d.ceil_pages(p.seq_len),
        tree_end=d.where(first, d.floor_pages(s.prefix_len), s.tree_end),
        window_start=d.where(first, 0, s.window_start),
        kv_valid=p.seq_len,
    )


@GHOSTS.wrong("decode", must="refused: only effects write ghosts")
def decode_claims_its_forward(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The claimed position counts as written and nothing writes it."""
    right = without(built_in("decode", d, s, p), Write)
    return with_fields(right, kv_valid=right.after.kv_committed_len)


@GHOSTS.wrong("decode", must="refused: only effects write ghosts")
def decode_claims_its_page(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A page counts as taken and is not: the token is written to whatever page the row still names."""
    right = without(built_in("decode", d, s, p), Take)
    return with_fields(right, row_end=d.ceil_pages(right.after.kv_allocated_len))


@GHOSTS.wrong("evict_window", must="refused: only effects write ghosts")
def eviction_claims_its_free(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The cursor moves and no window page is freed: the window pool runs empty."""
    right = without(built_in("evict_window", d, s, p), FreeWindow)
    moved = d.floor_pages(right.after.swa_evicted_seqlen)
    return with_fields(right, window_start=d.where(s.window_start <= moved, moved, s.window_start))


@GHOSTS.wrong("insert", must="refused: only effects write ghosts")
def insert_claims_the_tree(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The pages count as the tree's and were never handed to it: nobody frees them."""
    right = without(built_in("insert", d, s, p), Insert)
    return with_fields(right, tree_end=d.floor_pages(p.key_len))


@GHOSTS.wrong("retract", must="refused: only effects write ghosts")
def retract_claims_valid_kv(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The dropped step's position counts as computed: the next turn reuses KV that was never written."""
    right = without(built_in("retract", d, s, p), Forget)
    return with_fields(right, kv_valid=s.kv_committed_len)


@GHOSTS.wrong("refuse", must="refused: only effects write ghosts")
def refusal_forgives_orphans(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A rule that has nothing to do with pages sets the count of lost pages to zero: leaks are forgiven."""
    return with_fields(built_in("refuse", d, s, p), orphans=0)


@GHOSTS.wrong("abort_queued", must="I14")
def abort_rewrites_success(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An abort rewrites what counts as success, and the checkpoint with it, by one token for each turn."""
    less = d.where(
        d.every(s.is_open, d.no(s.slot_held), d.one <= s.checkpoint_len),
        s.checkpoint_len - d.where(d.one <= s.checkpoint_len, d.one, d.zero),
        s.checkpoint_len,
    )
    return with_fields(built_in("abort_queued", d, s, p), checkpoint_len=less, success_len=less)


@GHOSTS.wrong("refuse", must="turns are counted")
def second_turn_replaces_the_first(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A second turn takes the place of one that waits, and the count of turns stays: the first is never answered."""
    fresh = d.every(
        s.phase == WAITING,
        d.no(s.matched),
        d.no(s.pre_aborted),
        s.output_len == d.zero,
        s.origin_len <= s.checkpoint_len + d.one,
    )
    return Step(s.but(origin_len=d.where(fresh, s.origin_len + d.one, s.origin_len)))
