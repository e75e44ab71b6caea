"""Inserts into the tree: of pages that were never written, of too many, of copies that nobody frees."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

from kvproof.spec.actions import Step
from kvproof.spec.actions.release import release_row
from kvproof.spec.domain import Domain, smaller
from kvproof.spec.effects import Insert
from kvproof.spec.state import Ledger
from referee.cases import Variants
from referee.variants.changes import built_in, with_fields, without_guard

INSERTS = Variants("inserts into the tree")


@INSERTS.wrong("finish_plain", must="I8")
def insert_reserved_pages(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The pages that speculation reserved go to the tree, unwritten: whoever matches them reads what was there before."""
    right = built_in("finish_plain", d, s, p)
    pages = d.floor_pages(s.kv_allocated_len)
    insert = Insert(
        p.inserted, pages, smaller(d, d.floor_pages(p.dup_len), pages), d.floor_pages(s.cache_protected_len)
    )
    own = d.where(p.inserted, d.tokens(pages), s.cache_protected_len)
    return dataclasses.replace(right, effects=(insert, *release_row(d, d.true, own, s.kv_allocated_len)))


@INSERTS.wrong("finish_plain", must="I8")
def insert_the_page_in_progress(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A page that is written in part goes to the tree as a whole one: a match takes its empty end for tokens."""
    right = built_in("finish_plain", d, s, p)
    pages = d.ceil_pages(s.kv_committed_len)
    insert = Insert(
        p.inserted, pages, smaller(d, d.floor_pages(p.dup_len), pages), d.floor_pages(s.cache_protected_len)
    )
    own = d.where(p.inserted, d.tokens(pages), s.cache_protected_len)
    return dataclasses.replace(right, effects=(insert, *release_row(d, d.true, own, s.kv_allocated_len)))


@INSERTS.wrong("insert", must="I16")
def insert_keeps_the_copies(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Copies of what the tree already has are neither freed nor put into a node: they are lost for ever."""
    right = built_in("insert", d, s, p)
    own = Insert(d.true, d.floor_pages(p.key_len), d.floor_pages(d.zero), d.floor_pages(s.cache_protected_len))
    return dataclasses.replace(right, effects=(own,))


@INSERTS.wrong("finish_plain", must="I16")
def finish_keeps_the_copies(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """An ordinary request ends and its copies of what the tree has are handed over with the rest: nobody frees them."""
    right = built_in("finish_plain", d, s, p)
    pages = d.floor_pages(s.kv_committed_len)
    own = Insert(p.inserted, pages, d.floor_pages(d.zero), d.floor_pages(s.cache_protected_len))
    return dataclasses.replace(right, effects=(own, *right.effects[1:]))


@INSERTS.wrong("insert", must="I16")
def insert_frees_the_trees_own(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Copies are freed from the start of the row (sglang-jax #994): the tree's own pages go back while it has them."""
    right = built_in("insert", d, s, p)
    own = Insert(d.true, d.floor_pages(p.key_len), d.floor_pages(p.dup_len), d.floor_pages(d.zero))
    return dataclasses.replace(right, effects=(own,))


@INSERTS.wrong("insert", must="X2")
def insert_the_answer(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A session's output goes into the tree: its slot and the tree then own the same pages."""
    return without_guard(built_in("insert", d, s, p), "never its output")


@INSERTS.wrong("insert", must="I3, I8")
def insert_what_was_not_computed(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """Tokens without KV are inserted: others reuse pages that were never written."""
    return without_guard(built_in("insert", d, s, p), "has its KV")


@INSERTS.wrong("insert", must="I12")
def insert_moves_no_boundary(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The pages go to the tree and the request's R stays: its release frees pages that the tree owns."""
    return with_fields(built_in("insert", d, s, p), cache_protected_len=s.cache_protected_len)


@INSERTS.wrong("insert", must="I12")
def insert_nothing_and_say_so(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """R moves as if the prompt had been inserted, but nothing was: these pages are freed by nobody."""
    return dataclasses.replace(built_in("insert", d, s, p), effects=())


@INSERTS.wrong("finish_plain", must="I16")
def finish_frees_less_than_it_keeps(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """A request that the tree takes nothing of frees only what is behind its whole pages: the others are lost."""
    right = built_in("finish_plain", d, s, p)
    own = d.tokens(d.floor_pages(s.kv_committed_len))
    return dataclasses.replace(right, effects=(right.effects[0], *release_row(d, d.true, own, s.kv_allocated_len)))


@INSERTS.wrong("finish_plain", must="I16")
def finish_frees_what_the_tree_took(d: Domain, s: Ledger, p: SimpleNamespace) -> Step:
    """The event says that the tree took the pages, and the rule frees them: the tree names pages that somebody else gets."""
    return built_in("finish_plain", d, s, SimpleNamespace(**{**vars(p), "inserted": d.false}))
