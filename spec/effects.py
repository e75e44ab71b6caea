"""Effects: the few things that an action can do to rows, pages and locks, with the conditions under which they are safe.

An action states its effects in order. Applying them writes the ghost state and yields side conditions: sentences that must
hold for the effect to keep every page with exactly one owner. The ledger proof shows each condition for each action; the
proof over unbounded rows and pages (`model/page_lemmas.py`) shows once per effect that, given its conditions, ownership is
kept; the replay applies the same effects to real page ids.

`when` makes an effect conditional, because the same action may or may not need it (a decode step takes a page only when
it crosses a boundary).
"""

from __future__ import annotations

from dataclasses import dataclass

from kvproof.spec.domain import Count, Domain, Flag, Length, implies, is_aligned, larger, smaller
from kvproof.spec.state import RUNNING, Ledger, is_live, owner_is_slot


@dataclass(frozen=True)
class Condition:
    """A sentence that must hold, and the invariant that is broken when it does not."""

    invariant: str
    holds: Flag
    sentence: str


Applied = tuple[Ledger, tuple[Condition, ...]]


@dataclass(frozen=True)
class Begin:
    """A turn of a session, or an ordinary request, begins with so many tokens of input."""

    tokens: Length
    of_session: Flag

    def apply(self, d: Domain, s: Ledger, after: Ledger) -> Applied:
        last = Condition(
            "I15",
            implies(d, self.of_session, d.no(s.close_asked)),
            "no turn is admitted while a close waits for the one in flight",
        )
        return s.but(turns=s.turns + d.where(self.of_session, 1, 0), input_len=self.tokens), (last,)


@dataclass(frozen=True)
class Generate:
    """A result gives the turn so many tokens."""

    tokens: Length

    def apply(self, d: Domain, s: Ledger, after: Ledger) -> Applied:
        ends_input = implies(d, d.one <= self.tokens, after.phase == RUNNING)
        conditions = (
            Condition("I22", ends_input, "a chunk that does not end the input gives no token"),
            Condition("I22", self.tokens <= most_tokens(d), "no more is accepted than was drafted"),
        )
        paid = d.some(s.paid, d.one <= self.tokens)
        return s.but(generated_len=s.generated_len + self.tokens, paid=paid), conditions


@dataclass(frozen=True)
class Succeed:
    """The turn finishes with success; so many of its tokens are kept."""

    tokens: Length

    def apply(self, d: Domain, s: Ledger, after: Ledger) -> Applied:
        conditions = (
            Condition(
                "I14", self.tokens <= s.input_len + s.generated_len, "a turn that finishes keeps tokens that it has"
            ),
            Condition("I14", s.input_len <= self.tokens, "a turn that finishes keeps its whole input"),
        )
        return s.but(success_len=self.tokens), conditions


@dataclass(frozen=True)
class End:
    """The turn of a session, or the ordinary request, is over."""

    of_session: Flag

    def apply(self, d: Domain, s: Ledger, after: Ledger) -> Applied:
        turns = s.turns - d.where(self.of_session, 1, 0)
        return s.but(turns=turns, input_len=d.zero, generated_len=d.zero), ()


@dataclass(frozen=True)
class AskClose:
    """A close is asked for while a turn is in flight: the session ends when the turn has."""

    def apply(self, d: Domain, s: Ledger, after: Ledger) -> Applied:
        return s.but(close_asked=d.true), ()


@dataclass(frozen=True)
class EndSession:
    """The session is over, and with it its history."""

    def apply(self, d: Domain, s: Ledger, after: Ledger) -> Applied:
        idle = Condition("I15", s.turns == 0, "a session ends when it has no turn in flight")
        return s.but(success_len=d.zero, close_asked=d.false), (idle,)


@dataclass(frozen=True)
class TakeRow:
    """A row of req_to_token is taken from the row pool."""

    when: Flag

    def apply(self, d: Domain, s: Ledger, after: Ledger) -> Applied:
        alone = Condition("I5", implies(d, self.when, s.rows == 0), "a ledger has at most one row")
        took = s.but(rows=s.rows + 1, row_end=0, tree_end=0, window_start=0, kv_valid=d.zero)
        return _if(d, self.when, took, s), (alone,)


@dataclass(frozen=True)
class DropRow:
    """The row goes back to the row pool."""

    when: Flag

    def apply(self, d: Domain, s: Ledger, after: Ledger) -> Applied:
        conditions = (
            Condition("I16", implies(d, self.when, s.rows == 1), "a row is returned once"),
            Condition("I16", implies(d, self.when, s.row_end == s.tree_end), "a returned row owns no page any more"),
            Condition("I5", implies(d, self.when, d.no(is_live(d, after))), "a returned row has no user"),
        )
        lost = s.row_end - s.tree_end
        dropped = s.but(
            rows=s.rows - 1, orphans=s.orphans + lost, row_end=0, tree_end=0, window_start=0, kv_valid=d.zero
        )
        return _if(d, self.when, dropped, s), conditions


@dataclass(frozen=True)
class Share:
    """The matched prefix of the tree, `pages` whole pages, is written into a new row."""

    when: Flag
    pages: Count

    def apply(self, d: Domain, s: Ledger, after: Ledger) -> Applied:
        empty = Condition("I7", implies(d, self.when, s.row_end == 0), "a shared prefix is written into an empty row")
        shared = s.but(row_end=self.pages, tree_end=self.pages, kv_valid=d.tokens(self.pages))
        return _if(d, self.when, shared, s), (empty,)


@dataclass(frozen=True)
class Take:
    """Fresh pages are written behind the row's pages [first, last). The admission was charged this many tokens for them."""

    first: Count
    last: Count
    charge: Length

    def apply(self, d: Domain, s: Ledger, after: Ledger) -> Applied:
        some = self.first < self.last
        conditions = (
            Condition("I5", implies(d, some, s.rows == 1), "pages are taken for a row that the ledger has"),
            Condition(
                "I7", implies(d, some, self.first == s.row_end), "no page is overwritten in the row before it was freed"
            ),
            Condition(
                "I18",
                implies(d, some, covers(d, self.charge, self.last - self.first)),
                "the charge covers what the allocator takes",
            ),
        )
        overwritten = d.where(self.first < s.row_end, smaller(d, s.row_end, self.last) - self.first, 0)
        took = s.but(row_end=larger(d, s.row_end, self.last), orphans=s.orphans + overwritten)
        return _if(d, some, took, s), conditions


@dataclass(frozen=True)
class Write:
    """The forward writes the KV of the turn's tokens at row positions [start, end), reading all before `start`."""

    start: Length
    end: Length

    def apply(self, d: Domain, s: Ledger, after: Ledger) -> Applied:
        some = self.start < self.end
        conditions = (
            Condition(
                "I8", implies(d, some, self.start <= s.kv_valid), "the reused prefix holds the turn's own tokens"
            ),
            Condition("I1", implies(d, some, d.ceil_pages(self.end) <= s.row_end), "every written position has a page"),
            Condition(
                "I12",
                implies(d, some, s.tree_end <= d.floor_pages(self.start)),
                "nothing is written into a page that the tree owns",
            ),
        )
        return s.but(kv_valid=d.where(some, self.end, s.kv_valid)), conditions


@dataclass(frozen=True)
class Free:
    """The KV indices of row positions [start, end) are handed to the allocator, which frees their whole pages."""

    start: Length
    end: Length

    def apply(self, d: Domain, s: Ledger, after: Ledger) -> Applied:
        some = self.start < self.end
        first, last = d.floor_pages(self.start), d.ceil_pages(self.end)
        conditions = (
            Condition("I4", implies(d, some, is_aligned(d, self.start)), "a free starts on a page boundary"),
            Condition(
                "I4", implies(d, some, last == s.row_end), "a free ends with the row's last page, each page once"
            ),
            Condition("I1", implies(d, some, s.tree_end <= first), "no page of the tree is freed by a row"),
            Condition(
                "I6",
                implies(d, some, d.ceil_pages(_still_read(d, after)) <= first),
                "no page is freed that the session or its turn still reads",
            ),
        )
        beyond = d.where(last < s.row_end, s.row_end - last, 0)
        freed = s.but(
            row_end=first,
            tree_end=smaller(d, s.tree_end, first),
            window_start=smaller(d, s.window_start, first),
            orphans=s.orphans + beyond,
            kv_valid=smaller(d, s.kv_valid, d.tokens(first)),
        )
        return _if(d, some, freed, s), conditions


@dataclass(frozen=True)
class FreeByLoc:
    """Indices of row positions [start, end) are freed beside the release, which does not know of it (sglang #12224).

    No right rule does this: the row still names the pages, and who releases it frees them again.
    """

    start: Length
    end: Length

    def apply(self, d: Domain, s: Ledger, after: Ledger) -> Applied:
        some = self.start < self.end
        pages = d.where(some, d.ceil_pages(self.end) - d.floor_pages(self.start), 0)
        alone = Condition("I16", d.no(some), "nothing but the release frees a turn's pages")
        still = Condition(
            "I6", implies(d, some, _still_read(d, after) <= self.start), "no page is freed that is still read"
        )
        return s.but(orphans=s.orphans - pages), (alone, still)


@dataclass(frozen=True)
class FreeWindow:
    """The window pool's pages behind the row's pages [first, last) are freed; the pages of the full pool stay."""

    first: Count
    last: Count

    def apply(self, d: Domain, s: Ledger, after: Ledger) -> Applied:
        some = self.first < self.last
        live_from = larger(d, s.tree_end, s.window_start)
        conditions = (
            Condition("I10", implies(d, some, self.first == live_from), "a window page is freed once, oldest first"),
            Condition("I10", implies(d, some, self.last <= s.row_end), "only window pages behind the row are freed"),
            Condition(
                "I9",
                implies(d, some, d.tokens(self.last) + d.window <= _still_read(d, after)),
                "what the window of the next token reaches stays",
            ),
        )
        return s.but(window_start=d.where(some, self.last, s.window_start)), conditions


@dataclass(frozen=True)
class Forget:
    """Tokens behind `length` are no longer the session's: what the row holds there matches no later turn."""

    length: Length

    def apply(self, d: Domain, s: Ledger, after: Ledger) -> Applied:
        return s.but(kv_valid=smaller(d, s.kv_valid, self.length)), ()


@dataclass(frozen=True)
class Insert:
    """Pages [R, pages) of the row go to the tree; up to `duplicates` it had them already: those copies are freed.

    `freed_from`: the page from which duplicates are freed; the right one is R (sglang-jax #994).
    """

    when: Flag
    pages: Count
    duplicates: Count
    freed_from: Count

    def apply(self, d: Domain, s: Ledger, after: Ledger) -> Applied:
        some = d.every(self.when, s.tree_end < self.duplicates)
        conditions = (
            Condition(
                "I12", implies(d, self.when, self.pages <= s.row_end), "only pages behind the row go to the tree"
            ),
            Condition("I12", implies(d, self.when, s.tree_end <= self.pages), "what the tree owns it keeps"),
            Condition(
                "I8", implies(d, self.when, d.tokens(self.pages) <= s.kv_valid), "what goes to the tree has its KV"
            ),
            Condition("I4", implies(d, self.when, self.duplicates <= self.pages), "only duplicates are freed"),
            Condition("I16", implies(d, some, self.freed_from == s.tree_end), "each duplicate is freed, and once"),
        )
        skipped = d.where(some, smaller(d, self.freed_from, self.duplicates) - s.tree_end, 0)
        inserted = s.but(tree_end=self.pages, orphans=s.orphans + larger(d, skipped, 0))
        return _if(d, self.when, inserted, s), conditions


@dataclass(frozen=True)
class Lock:
    """The nodes of the tree that hold the first `pages` pages of the prefix are locked, up to the root (inc_lock_ref)."""

    when: Flag
    pages: Count

    def apply(self, d: Domain, s: Ledger, after: Ledger) -> Applied:
        return s.but(locks=s.locks + d.where(self.when, 1, 0)), ()


@dataclass(frozen=True)
class Unlock:
    """That lock is undone (dec_lock_ref)."""

    when: Flag

    def apply(self, d: Domain, s: Ledger, after: Ledger) -> Applied:
        held = Condition("I11", implies(d, self.when, s.locks == 1), "a lock is undone once")
        return s.but(locks=s.locks - d.where(self.when, 1, 0)), (held,)


@dataclass(frozen=True)
class Report:
    """The memory check counts this ledger's pages: those of the slot as held, those of the live turn as uncached."""

    session_held: Count
    uncached: Count
    window_held: Count
    window_uncached: Count

    def apply(self, d: Domain, s: Ledger, after: Ledger) -> Applied:
        full = counted_once(d, after, self.session_held, self.uncached, true_pages(s))
        window = counted_once(d, after, self.window_held, self.window_uncached, true_window_pages(d, s))
        return s, (
            Condition("I2", full, "one term of the memory check counts each owned page once"),
            Condition("I2", implies(d, d.windowed, window), "and one counts each owned page of the window pool once"),
        )


Effect = (
    Begin
    | Generate
    | Succeed
    | End
    | AskClose
    | EndSession
    | TakeRow
    | DropRow
    | Share
    | Take
    | Write
    | Free
    | FreeByLoc
    | FreeWindow
    | Forget
    | Insert
    | Lock
    | Unlock
    | Report
)


def covers(d: Domain, charge: Length, pages: Count) -> Flag:
    """What an admission was charged is enough for what the allocator takes, whole pages (I18)."""
    return d.tokens(pages) <= charge


def most_tokens(d: Domain) -> Length:
    """Tokens that one result may give: the one that is sampled, and all drafts of a round."""
    return d.one + d.where(d.some(d.spec_v1, d.spec_v2), d.drafts, d.zero)


def true_pages(s: Ledger) -> Count:
    """Pages that were taken for this ledger's row and are neither free nor the tree's."""
    return s.row_end - s.tree_end + s.orphans


def true_window_pages(d: Domain, s: Ledger) -> Count:
    """Pages of the window pool behind the row's own pages that were not evicted."""
    return s.row_end - larger(d, s.tree_end, s.window_start) + s.orphans


def counted_once(d: Domain, s: Ledger, held: Count, uncached: Count, pages: Count) -> Flag:
    """One of the two terms counts all pages, the other none. Terms that only add up to them could both be wrong.

    Nothing is held for an ordinary request, and nothing is uncached of who does not run.
    """
    once = d.some(d.every(held == pages, uncached == 0), d.every(held == 0, uncached == pages))
    return d.every(once, d.some(d.no(s.plain), held == 0), d.some(is_live(d, s), uncached == 0))


def apply_effects(d: Domain, after: Ledger, effects: tuple[Effect, ...]) -> Applied:
    """The successor with its ghosts brought up to date, and every side condition of the effects."""
    conditions: list[Condition] = []
    ghosts = after
    for effect in effects:
        ghosts, found = effect.apply(d, ghosts, after)
        conditions.extend(found)
    if isinstance(ghosts, Ledger):  # other machines have no effects
        ghosts = ghosts.but(paid=d.every(ghosts.paid, after.phase == RUNNING))
    return ghosts, tuple(conditions)


def _still_read(d: Domain, after: Ledger) -> Length:
    """Leading tokens of the row that a later step reads: the live turn's, else the slot's."""
    of_slot = d.where(owner_is_slot(d, after), after.slot_kv_committed_len, d.zero)
    return d.where(is_live(d, after), after.kv_committed_len, of_slot)


def _if(d: Domain, flag: Flag, then: Ledger, otherwise: Ledger) -> Ledger:
    """Ghost fields of one ledger or the other; effects change no other field."""
    ghosts = ("rows", "row_end", "tree_end", "window_start", "orphans", "kv_valid")
    return otherwise.but(**{g: d.where(flag, getattr(then, g), getattr(otherwise, g)) for g in ghosts})
