"""From the queue into the cache: match, extend, stash, insert."""

from __future__ import annotations

from types import SimpleNamespace

from kvproof.spec.actions.action import ActionTable, Guard, Step
from kvproof.spec.domain import Count, Domain, Flag, Length, is_aligned, minus, one_page, orphan_start, smaller
from kvproof.spec.effects import Free, Insert, Lock, Share, Take, TakeRow, Write
from kvproof.spec.state import PREFILL, RUNNING, WAITING, Ledger, fill_len, is_live

PREFILL_ACTIONS = ActionTable()
action = PREFILL_ACTIONS.action


def _is_waiting(d: Domain, s: Ledger) -> Flag:
    return s.phase == WAITING


def match_key_len(d: Domain, s: Ledger) -> Length:
    """Length of the key that a match may use: one token is kept back, so that the extend has a logit to compute."""
    return fill_len(s) - d.one


@action("match", when=lambda d, s: d.every(_is_waiting(d, s), d.no(s.slot_held)), takes={"matched_len": "length"})
def match_tree(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A turn without a slot, or an ordinary request, matches the tree.

    It reuses what the tree has: whole pages, which the extend will lock.
    """
    guards = (
        Guard("the tree matches whole pages", is_aligned(d, p.matched_len)),
        Guard("a chunk cache matches nothing", d.some(d.tree, p.matched_len == d.zero)),
        Guard("one token is left to run", p.matched_len <= match_key_len(d, s)),
    )
    after = s.but(matched=d.true, prefix_len=p.matched_len, cache_protected_len=p.matched_len)
    return Step(after, guards)


def restored(d: Domain, s: Ledger, prefix_len: Length) -> Ledger:
    """The turn borrows the slot's row and lengths. The slot keeps its row: a rejected chunk matches again (#20476)."""
    return s.but(
        matched=d.true,
        lent=d.true,
        prefix_len=prefix_len,
        kv_committed_len=s.slot_kv_committed_len,
        kv_allocated_len=s.slot_kv_allocated_len,
        cache_protected_len=s.slot_cache_protected_len,
        swa_evicted_seqlen=s.slot_swa_evicted_seqlen,
    )


def without_tail(d: Domain, s: Ledger) -> Ledger:
    """Slot and turn alike end at prefix_len, because the extend overwrites the row from there (#22862)."""
    return s.but(
        slot_kv_committed_len=smaller(d, s.slot_kv_committed_len, s.prefix_len),
        slot_kv_allocated_len=s.prefix_len,
        slot_swa_evicted_seqlen=smaller(d, s.slot_swa_evicted_seqlen, s.prefix_len),
        kv_committed_len=smaller(d, s.kv_committed_len, s.prefix_len),
        kv_allocated_len=s.prefix_len,
        swa_evicted_seqlen=smaller(d, s.swa_evicted_seqlen, s.prefix_len),
    )


@action(
    "match",
    when=lambda d, s: d.every(_is_waiting(d, s), s.slot_held, d.no(s.pre_aborted)),
    source="sglang #20070, #22862",
)
def match_slot(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A later turn restores the slot and frees the orphaned tail.

    It reuses what the slot holds. The tail is freed before the extend overwrites it.
    """
    prefix_len = smaller(d, s.slot_kv_committed_len, match_key_len(d, s))
    tail = Free(orphan_start(d, prefix_len), s.slot_kv_allocated_len)
    after = without_tail(d, restored(d, s, prefix_len))
    return Step(after, effects=(tail,))


def charge(d: Domain, tokens: Length) -> Length:
    """What an admission is charged for `tokens` more: each request may need one page more than its tokens fill."""
    return tokens + one_page(d)


def take(d: Domain, before: Length, after: Length) -> Take:
    """The pages from `before` to `after`, and what the admission was charged for them."""
    return Take(d.ceil_pages(before), d.ceil_pages(after), charge(d, minus(d, after, before)))


def _may_extend(d: Domain, s: Ledger) -> Flag:
    chunk_is_kept = d.every(s.phase == PREFILL, s.prefix_len == s.kv_committed_len)
    return d.some(d.every(_is_waiting(d, s), s.matched), chunk_is_kept)


@action("extend", when=_may_extend, takes={"seq_len": "length", "last": "flag"})
def extend(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A prefill chunk takes its pages and runs.

    Take a row if the turn has none, take the pages of [prefix_len, seq_len), run the forward.
    """
    first = d.every(s.phase == WAITING, d.no(s.lent))
    guards = (
        Guard("a chunk runs at least one token", s.prefix_len < p.seq_len),
        Guard("a chunk ends within the input", p.seq_len <= fill_len(s)),
        Guard("the last chunk is the one that ends the input", p.last == (p.seq_len == fill_len(s))),
        Guard("a row is wide enough", p.seq_len <= d.row_width),
    )
    after = s.but(
        phase=d.where(p.last, RUNNING, PREFILL),
        matched=d.false,
        kv_committed_len=p.seq_len,
        kv_allocated_len=p.seq_len,
        pending=d.where(p.last, 1, d.where(d.overlap, s.pending + 1, 0)),
        prefill_known=d.every(s.prefill_known, d.no(p.last)),
    )
    shared = d.floor_pages(s.prefix_len)
    effects = (
        TakeRow(first),
        Lock(first, shared),
        Share(first, shared),
        take(d, s.prefix_len, p.seq_len),
        Write(s.prefix_len, p.seq_len),
    )
    return Step(after, guards, effects)


@action("stash", when=lambda d, s: d.every(s.phase == PREFILL, d.some(d.no(s.plain), d.no(d.tree))))
def stash(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A chunk is kept by copying its row: a session turn's, and any on a chunk cache.

    The chunk stays in its row; the next one begins where it ended.
    """
    return Step(s.but(prefix_len=s.kv_committed_len))


def insert_own(d: Domain, s: Ledger, when: Flag, pages: Count, dup_len: Length) -> Insert:
    """Hand the row's own pages up to `pages` to the tree; duplicates are freed from R on (sglang-jax #994)."""
    return Insert(when, pages, d.floor_pages(dup_len), d.floor_pages(s.cache_protected_len))


def copies_in_the_tree(d: Domain, s: Ledger, pages: Count, dup_len: Length) -> tuple[Guard, ...]:
    """How much of an insert the tree may have had already. Who inserts learns it then, and cannot choose it."""
    return (
        Guard("the tree holds whole pages", is_aligned(d, dup_len)),
        Guard("duplicates are of inserted pages", d.floor_pages(dup_len) <= pages),
        Guard("the locked prefix is still in the tree", s.cache_protected_len <= dup_len),
    )


def _may_insert(d: Domain, s: Ledger) -> Flag:
    """An ordinary request after each chunk; a session's first turn once, after its last chunk."""
    prompt_is_in = d.every(s.phase == RUNNING, d.no(s.slot_held), d.no(s.plain))
    return d.every(d.tree, s.phase != WAITING, d.some(d.every(s.plain, is_live(d, s)), prompt_is_in))


@action("insert", when=_may_insert, takes={"dup_len": "length", "key_len": "length"}, source="sglang #12224")
def insert(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A prompt or chunk goes into the tree.

    Whole pages go; copies of what the tree already had are freed.

    `key_len`: the tokens that were prefilled. Under overlap the next decode step is prepared by then, and C is one more.
    """
    pages = d.floor_pages(p.key_len)
    guards = (
        *copies_in_the_tree(d, s, pages, p.dup_len),
        Guard("what is inserted has its KV", d.every(p.key_len <= s.kv_committed_len, p.key_len < fill_len(s))),
        Guard("without overlap no step is prepared", d.some(d.overlap, p.key_len == s.kv_committed_len)),
        Guard(
            "a chunk is inserted as it is, the rest when its result is known",
            d.where(s.phase == PREFILL, p.key_len == s.kv_committed_len, d.one <= s.output_len),
        ),
        Guard("a session inserts its prompt, never its output", d.some(s.plain, p.key_len == s.origin_len)),
    )
    after = s.but(cache_protected_len=d.tokens(pages), prefix_len=p.key_len)
    return Step(after, guards, (insert_own(d, s, d.true, pages, p.dup_len),))
