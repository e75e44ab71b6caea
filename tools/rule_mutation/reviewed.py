"""Mutants of the specification that no check notices, read by hand, each with the reason. `make mutants-spec` reads it."""

from __future__ import annotations

from mutation.review import ALLOWED, EQUIVALENT, MISSED, Review

__all__ = ["ALLOWED", "EQUIVALENT", "MISSED", "REVIEWS", "Review"]

LIVENESS, EFFECTS, POOL = "spec/liveness.py", "spec/effects.py", "spec/pool.py"

DOMAIN = "spec/domain.py"
PAGES, WINDOW_MAP = "model/pages.py", "model/window_map.py"
FINITE = "It bounds finite instances alone: of rows and pages of any number the same formula says that they are numbered from 0."


def _bound(path: str, function: str, *mutants: str) -> Review:
    return Review(path, function, mutants, EQUIVALENT, FINITE)


WINDOW_END = "d.tokens(after.window_start) + d.window"
BEHIND = "minus(d, given['pre_len'], d.window + one_page(d))"
ROUNDED_UP = "swap twin: floor_pages -> ceil_pages"
ALIGNED = (
    ("spec/actions/prefill.py", "extend"),
    ("spec/actions/prefill.py", "insert_own"),  # the length of the duplicates,
    ("spec/actions/prefill.py", "insert_own"),  # and the protected one
    (DOMAIN, "footprint"),
    (DOMAIN, "window_from"),
)


def _aligned(path: str, function: str) -> Review:
    reason = "The length is one of whole pages by I12 or a guard, so both are the same number. Only wrong rules have another one."
    return Review(path, function, (ROUNDED_UP,), EQUIVALENT, reason)


REVIEWS: tuple[Review, ...] = (
    Review(
        LIVENESS,
        "rank",
        (
            "off by one: s.pending + 2 -> s.pending + 2 + 1",
            "off by one: d.where(_chunk_is_kept(d, s), 5, 6) -> d.where(_chunk_is_kept(d, s), 5, 6) + 1",
            "off by one: d.where(_chunk_is_kept(d, s), 5, 6) -> d.where(_chunk_is_kept(d, s), 5, 6) - 1",
            "off by one: 5 -> 5 - 1",
            "off by one: 6 -> 6 + 1",
            "off by one: d.where(s.matched, 7, 8) -> d.where(s.matched, 7, 8) + 1",
            "off by one: d.where(s.matched, 7, 8) -> d.where(s.matched, 7, 8) - 1",
            "off by one: 7 -> 7 - 1",
            "off by one: 8 -> 8 + 1",
            "off by one: d.where(s.phase == RUNNING, running, prefill) -> d.where(s.phase == RUNNING, running, prefill) + 1",
            "off by one: running -> running + 1",
            "off by one: prefill -> prefill + 1",
            "off by one: prefill -> prefill - 1",
            "off by one: d.where(s.phase == WAITING, queued, live) -> d.where(s.phase == WAITING, queued, live) + 1",
            "off by one: queued -> queued + 1",
            "off by one: queued -> queued - 1",
            "off by one: live -> live + 1",
        ),
        EQUIVALENT,
        "The rank is a witness: any number that falls with each way on shows that turns end, and this one falls, too.",
    ),
    Review(
        LIVENESS,
        "a turn that was to be aborted is aborted applies",
        ("drop operand: s.pending == 0 -> (dropped)",),
        ALLOWED,
        "The question is asked of more states, and an abort leads on from these, too.",
    ),
    Review(
        "spec/actions/prefill.py",
        "take",
        (
            "off by one: charge(d, minus(d, after, before)) -> charge(d, minus(d, after, before)) + 1",
            "off by one: charge(d, minus(d, after, before)) -> charge(d, minus(d, after, before)) - 1",
            "off by one: minus(d, after, before) -> minus(d, after, before) + 1",
            "off by one: minus(d, after, before) -> minus(d, after, before) - 1",
            "off by one: before -> before + 1",
            "off by one: before -> before - 1",
        ),
        ALLOWED,
        "A charge one token higher or lower covers what the allocator takes, too, which is all that I18 asks; no trace tells it.",
    ),
    Review(
        "spec/events.py",
        "_of_its_pages",
        ("swap twin: floor_pages -> ceil_pages",),
        ALLOWED,
        "What a tree tells of copies is of whole pages: a guard of each rule that inserts says so.",
    ),
    Review(
        "spec/events.py",
        "_of_its_pages",
        (
            f"off by one: {BEHIND} -> {BEHIND} + 1",
            "off by one: given['pre_len'] -> given['pre_len'] + 1",
            "off by one: d.window + one_page(d) -> d.window + one_page(d) - 1",
            "flip comparison: d.floor_pages(last) <= after.window_start -> d.floor_pages(last) < after.window_start",
            "off by one: last -> last + 1",
        ),
        ALLOWED,
        "It asks for an eviction that is a little earlier. The rules evict at once: no right one is as late as is allowed.",
    ),
    Review(
        "spec/events.py",
        "_of_its_pages",
        (
            "off by one: d.row_width -> d.row_width + 1",
            "drop operand: end <= before.row_end -> (dropped)",
            "flip comparison: end <= before.row_end -> end < before.row_end",
        ),
        ALLOWED,
        "It asks for more pages. The rules take those of a whole round each time, and begin none for which the row is too short.",
    ),
    Review(
        "spec/events.py",
        "_of_its_pages",
        ("drop operand: d.no(before.plain) -> (dropped)",),
        ALLOWED,
        "It asks ordinary requests, too. A retract takes their row, so nothing is read there: a server need not keep it.",
    ),
    Review(
        "spec/events.py",
        "_of_its_pages",
        (
            "off by one: before.output_len -> before.output_len + 1",
            "off by one: before.output_len -> before.output_len - 1",
        ),
        EQUIVALENT,
        "Where the event names no finished length, the output is compared with itself and a token: at most is true of each.",
    ),
    *(
        Review(
            DOMAIN,
            name,
            (f"flip comparison: {least} -> {less}",),
            EQUIVALENT,
            "Where both numbers are the same, both branches give one value.",
        )
        for name, least, less in (("larger", "a <= b", "a < b"), ("minus", "b <= a", "b < a"))
    ),
    Review(
        DOMAIN,
        "minus",
        ("off by one: d.zero -> d.zero + 1",),
        EQUIVALENT,
        "The value is chosen where b is larger, and the whole is nothing there.",
    ),
    Review(
        "spec/events.py",
        "_of_its_pages",
        (
            f"drop operand: {WINDOW_END} <= first -> (dropped)",
            f"flip comparison: {WINDOW_END} <= first -> {WINDOW_END} < first",
            "off by one: after.window_start -> after.window_start + 1",
        ),
        ALLOWED,
        "It asks that a step which is launched evicts less. The rules evict nothing there: a server may.",
    ),
    Review(
        "spec/actions/decode.py",
        "result",
        ("off by one: s.kv_committed_len -> s.kv_committed_len - 1",),
        ALLOWED,
        "The position before is the row's own and no tree's: it may be written again.",
    ),
    Review(
        "spec/actions/prefill.py",
        "_may_insert",
        ("drop operand: s.phase == RUNNING -> (dropped)",),
        ALLOWED,
        "A chunk of a session's first turn may go to the tree before the last one, too: its KV is computed.",
    ),
    Review(
        "spec/actions/finish.py",
        "queued_again",
        ("drop update: 'pre_aborted' -> (dropped)",),
        EQUIVALENT,
        "No turn that is cut short is retracted: it ends with its first token. Only wrong rules have it otherwise.",
    ),
    Review(
        "spec/actions/finish.py",
        "retract",
        ("drop operand: s.pending == 0 -> (dropped)", "off by one: s.kv_committed_len -> s.kv_committed_len + 1"),
        EQUIVALENT,
        "No KV is valid behind the committed length, nor behind known tokens where no step is in flight: both forget nothing.",
    ),
    Review(
        "spec/actions/finish.py",
        "abort_nth",
        ("off by one: s.slot_kv_allocated_len -> s.slot_kv_allocated_len - 1",),
        EQUIVALENT,
        "It is the larger of two lengths, and a turn that runs on its slot's row has at least the slot's pages.",
    ),
    Review(
        "spec/actions/finish.py",
        "_at_most_one_is_late",
        ("drop operand: d.one <= s.output_len -> (dropped)",),
        ALLOWED,
        "A turn that ends before its first result keeps its input and loses no page. A server ends a turn where a result comes.",
    ),
    *(_aligned(*place) for place in ALIGNED),
    Review(
        EFFECTS,
        "Take.apply",
        ("off by one: s.row_end -> s.row_end + 1", "off by one: s.row_end -> s.row_end - 1"),
        EQUIVALENT,
        "It counts pages that are lost by a step whose condition I7 has failed already. A right step loses none by either.",
    ),
    Review(
        EFFECTS,
        "Free.apply",
        ("drop update: tree_end=smaller(d, s.tree_end, first) -> (dropped)", "off by one: first -> first + 1"),
        EQUIVALENT,
        "It only cuts where the condition I1 has failed already: a right free begins behind the tree's pages.",
    ),
    Review(
        EFFECTS,
        "FreeByLoc.apply",
        (
            "swap twin: ceil_pages -> floor_pages",
            "off by one: self.end -> self.end - 1",
            "off by one: self.start -> self.start + 1",
            "flip comparison: _still_read(d, after) <= self.start -> _still_read(d, after) < self.start",
        ),
        ALLOWED,
        "No right rule has this effect. Every use of it fails by its first condition, whatever the second says and it counts.",
    ),
    Review(
        POOL,
        "pool_admit",
        ("off by one: s.others + p.charge -> s.others + p.charge + 1",),
        ALLOWED,
        "A scheduler may keep a token back: what is admitted fits all the more.",
    ),
    *(
        Review(
            POOL,
            name,
            ("flip comparison: 0 <= p.pages -> 0 < p.pages",),
            EQUIVALENT,
            "A step with no pages changes nothing.",
        )
        for name in ("pool_give_back", "pool_unlock")
    ),
    Review(
        POOL,
        "pool_elsewhere",
        ("flip comparison: 0 <= p.evictable -> 0 < p.evictable",),
        ALLOWED,
        "Others who leave nothing to evict lead to a state that the induction begins with, too.",
    ),
    Review(
        "spec/state.py",
        "owner_is_slot",
        ("drop operand: s.lent -> (dropped)",),
        EQUIVALENT,
        "A turn that runs while its session has a slot runs on the slot's row. Only wrong rules have it otherwise.",
    ),
    _bound(PAGES, "ownership.j2", "drop operand: u.inside(row) -> (dropped)"),
    _bound(
        PAGES,
        "ownership.j4",
        "off by one: i -> i + 1",
        "drop operand: s.row_end[i] <= u.size -> (dropped)",
        "off by one: u.size -> u.size + 1",
    ),
    *(_bound(PAGES, name, "drop condition: u.inside(r) -> (dropped)") for name in ("_free", "_insert", "_drop_row")),
    _bound(PAGES, "_take", "drop condition: u.inside(r) -> (dropped)", "off by one: u.size -> u.size + 1"),
    _bound(PAGES, "_share", "drop condition: u.inside(r) -> (dropped)", "off by one: u.size -> u.size + 1"),
    _bound(PAGES, "_evict", "drop condition: u.inside(g) -> (dropped)"),
    _bound(WINDOW_MAP, "_evict_window", "drop condition: u.inside(PAGE) -> (dropped)"),
    Review(
        WINDOW_MAP,
        "_insert.hands_on",
        ("off by one: j -> j + 1",),
        EQUIVALENT,
        "Which copies may hand on their window page is left open: any array says it.",
    ),
    Review(
        WINDOW_MAP,
        "_insert.behind",
        ("drop operand: g != NONE -> (dropped)",),
        ALLOWED,
        "It says what becomes of a window page behind the page that has no number. There is none.",
    ),
)
