"""The number domain that every rule is written over, and the page arithmetic on it.

A rule is an ordinary function of values whose type it does not know: Python integers in the oracle, pairs of Z3 integers in
the proof (so that the page size is a free symbol), columns in the compiled checker. Lengths support `+`, `-` (never
below zero: the caller knows that the left side is larger), `<`, `<=`, `==`; page counts and counters are plain integers of
the domain. Everything else a rule needs is a method here.

Units: a *length* is in tokens, a *count* in pages (or rows, locks, turns). They never mix: `ceil_pages`, `floor_pages` and
`tokens` are the only bridges (I22).
"""

from __future__ import annotations

from typing import Protocol, TypeVar

# What mypy sees of a domain's values, whatever they are when a rule runs. A count (of pages, rows, locks, turns) is typed as an
# integer and a flag as a bool; a length is a type of its own, so a length added to a count, or compared with one, is an error.
Count = int
Flag = bool


class Length(Protocol):
    """A number of tokens."""

    def __add__(self, other: Length, /) -> Length: ...

    def __sub__(self, other: Length, /) -> Length: ...

    def __lt__(self, other: Length, /) -> Flag: ...

    def __le__(self, other: Length, /) -> Flag: ...


T = TypeVar("T")
Number = TypeVar("Number", Length, Count)


class Domain(Protocol):
    """What a rule may ask of numbers and of the configuration.

    `zero` and `one` are lengths of that many tokens; `row_width` bounds a row. The configuration is fixed for a run and free in
    a proof: `overlap` (a step is prepared before the last result is known), `spec_v1` and `spec_v2` (speculation, at most
    one), `drafts` (draft tokens of a round, at least one), `windowed` and `window` (sliding-window attention, a second
    pool), `tree` (a radix tree; else a chunk cache, which shares nothing).
    """

    @property
    def overlap(self) -> Flag: ...

    @property
    def spec_v1(self) -> Flag: ...

    @property
    def spec_v2(self) -> Flag: ...

    @property
    def drafts(self) -> Length: ...

    @property
    def windowed(self) -> Flag: ...

    @property
    def window(self) -> Length: ...

    @property
    def tree(self) -> Flag: ...

    @property
    def zero(self) -> Length: ...

    @property
    def one(self) -> Length: ...

    @property
    def row_width(self) -> Length: ...

    @property
    def true(self) -> Flag: ...

    @property
    def false(self) -> Flag: ...

    def every(self, *flags: Flag) -> Flag: ...

    def some(self, *flags: Flag) -> Flag: ...

    def no(self, flag: Flag) -> Flag: ...

    def where(self, flag: Flag, then: T, otherwise: T, /) -> T: ...

    def ceil_pages(self, length: Length) -> Count: ...

    def floor_pages(self, length: Length) -> Count: ...

    def tokens(self, pages: Count) -> Length: ...


def implies(d: Domain, premise: Flag, conclusion: Flag) -> Flag:
    return d.some(d.no(premise), conclusion)


def smaller(d: Domain, a: Number, b: Number) -> Number:
    return d.where(a <= b, a, b)


def larger(d: Domain, a: Number, b: Number) -> Number:
    return d.where(a <= b, b, a)


def is_aligned(d: Domain, length: Length) -> Flag:
    """The length ends on a page boundary."""
    return d.tokens(d.floor_pages(length)) == length


def ceil_align(d: Domain, length: Length) -> Length:
    """The length rounded up to whole pages, in tokens."""
    return d.tokens(d.ceil_pages(length))


def floor_align(d: Domain, length: Length) -> Length:
    """The length rounded down to whole pages, in tokens."""
    return d.tokens(d.floor_pages(length))


def footprint(d: Domain, kv_allocated_len: Length, cache_protected_len: Length) -> Count:
    """Pages of row positions [R, ceil(A, P)): what a request or a slot owns beside the tree (sglang #20070)."""
    return d.ceil_pages(kv_allocated_len) - d.floor_pages(cache_protected_len)


def orphan_start(d: Domain, kept_len: Length) -> Length:
    """Where the free of a tail begins when `kept_len` tokens stay: the next page boundary (sglang #22862).

    The allocator returns whole pages (index // page_size), so a free from `kept_len` itself would take the page that still
    holds kept tokens.
    """
    return ceil_align(d, kept_len)


def one_page(d: Domain) -> Length:
    """P tokens."""
    return d.tokens(d.floor_pages(d.zero) + 1)


def minus(d: Domain, a: Length, b: Length) -> Length:
    """a - b, or nothing where b is larger."""
    return d.where(b <= a, a - d.where(b <= a, b, d.zero), d.zero)


def window_from(d: Domain, cache_protected_len: Length, swa_evicted_seqlen: Length) -> Count:
    """First page of a row that owns a page of the window pool: from max(R, E), whole pages."""
    return larger(d, d.floor_pages(cache_protected_len), d.ceil_pages(swa_evicted_seqlen))


def window_keep_from(d: Domain, pre_len: Length) -> Length:
    """Where the sliding window still needs KV: floor_P(pre_len - W - P); a page of slack covers a retract's gap."""
    return floor_align(d, minus(d, pre_len, d.window + one_page(d)))
