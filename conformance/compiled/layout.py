"""What stands where in the arrays of the compiled checker. All names in capitals are constants of the compiled source."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvproof.conformance.replay.batch_in_flight import GIVE_UP, OF_REUSE
from kvproof.conformance.replay.compared_fields import BUSY as SHOWN_BUSY
from kvproof.conformance.replay.compared_fields import SHOWN, STEP, TERMS
from kvproof.conformance.replay.coverage import COUNTED, OF_A_CHECK, OF_EVICTED_PAGES, OF_EVICTED_WINDOW_PAGES
from kvproof.conformance.replay.judge import LATE_RESULTS, LEAVES_ITS_SESSION, OF_NO_TURN, WITH_ROW
from kvproof.conformance.replay.limits import AFTER, OF_A_LEDGER
from kvproof.conformance.replay.liveness import SPARE as SPARE
from kvproof.conformance.replay.passes import (
    ADMITS_OR_GIVES_BACK,
    ASKS_ABORT,
    BRINGS_NOTHING_ON,
    DECODES,
    GETS_ON,
    RETRACTS,
    STEPS_OF_A_TURN,
)
from kvproof.conformance.replay.passes import LOOKS_OF_EVENTS as LOOKS_OF_EVENTS
from kvproof.conformance.traces import columnar_schema
from kvproof.conformance.traces.columnar_schema import ACTIONS, FLAGS, NUMBERS, PAGE_LISTS, PAGE_LISTS_OR_NULL
from kvproof.spec.actions import ACTIONS as RULES
from kvproof.spec.batch import LAUNCHES
from kvproof.spec.effects import (
    AskClose,
    Begin,
    DropRow,
    Effect,
    End,
    EndSession,
    Forget,
    Free,
    FreeByLoc,
    FreeWindow,
    Generate,
    Insert,
    Lock,
    Report,
    Share,
    Succeed,
    Take,
    TakeRow,
    Unlock,
    Write,
)
from kvproof.spec.events import LEAVES
from kvproof.spec.state import FIELD_NAMES, NONE, PREFILL, RUNNING, WAITING
from kvproof.spec.tree import ROOT as ROOT
from kvproof.spec.tree import UNKNOWN as UNKNOWN

Array = Any

PLACES_OF_A_LINE = 16
"""int32 in a cache line of 64 bytes."""


def row_length(events: int) -> int:
    """Places in a row of the arrays of so many events: an odd number of cache lines. One event's places in all the rows would
    else, with a power of two, share a few sets of the cache and drive each other out of it."""
    return (-(-events // PLACES_OF_A_LINE) | 1) * PLACES_OF_A_LINE


class EventArrays(NamedTuple):
    """The events of one batch, as the loop reads them."""

    table: Array
    """int32[columns, events], see COLUMNS. The last events may be none: how many there are is passed separately."""
    steps: Array
    """int64[events]."""
    begins: Array
    """int32[lists, events]: where the runs of each list begin, see LISTS."""
    ends: Array
    """int32[lists, events]: and where they end."""
    runs: Array
    """int32[runs, 2]: first page, number of pages."""


class StateArrays(NamedTuple):
    """All else that the loop reads and changes. The numbers of columns are named below."""

    functions: Array
    """int64[FUNCTIONS]: the addresses of the functions of the rules that the loop calls."""
    settings: Array
    """int64[len(SETTINGS)]: the configuration."""
    limits: Array
    """int32[limits, 4]: a row of the table, the actions whose events may have it (a bit each), its lowest and highest number."""
    contraries: Array
    """int32[contraries, 5]: a row of the table, the actions (a bit each), the lowest number that is not there, the other row and
    what that says."""
    list_limits: Array
    """int64[4]: of ALLOC, FREED, WINDOW_ALLOC and WINDOW_FREED the actions whose events may have it."""
    ledgers: Array
    """int64[ledgers, fields]: a row is a ledger; all zero is the pristine one."""
    tables: Array
    """int64[ledgers, 14]: the page table of a ledger's row in the arena, and what else is known of it."""
    prefixes: Array
    """int32[numbers]: the page that the prefix of this number ended with when it was shown last (0: it was not)."""
    prefix_lengths: Array
    """int32[numbers]: how many pages it has (0: it was never shown)."""
    arena: Array
    """int32[...]: page tables, in blocks."""
    pages: Array
    """int32[7, pool pages + 1]: each kind of thing by itself, so that a run of pages touches few cache lines."""
    windows: Array
    """int32[2, window pages + 1]: the page that names it (0: none), and a mark."""
    users: Array
    """int32[rows]: the ledger that has the row, + 1."""
    launched: Array
    """int64[rows]: the launch that reads and writes the row while its result is not known, as a number of an event (0: none)."""
    given_up: Array
    """int64[pool pages + 1], with overlap: the event at which a row let go of the page while its step ran (0: none did)."""
    window_given_up: Array
    """int64[window pages + 1], with overlap: of the window pool, the event at which a row let go of the page."""
    turns: Array
    """int64[turns, 9]: its own ledger, the ledger that its events are about + 1 (0: none yet), whether it was refused
    or is over, how many results may come late, 1 + how many of its steps were launched since its abort was asked for
    (0: it was not), its last launch and the one before it as numbers of events (0: none), whether the result of the last one is
    awaited, and 1 + how many input tokens its session was shown (0: it was shown none, or the turn is over)."""
    counts: Array
    """int64[COUNTS]: numbers of the whole replay."""
    rules: Array
    """int64[actions]: how often each was taken."""
    seen: Array
    """int64[2 * (actions + 1), PLANES]: how often each of them, and at last evict, checked what, and how often it showed what.
    See `count_seen`."""
    shown_last: Array
    """int64[actions, 3]: what an event of each showed last; how many in a row did, which are not counted in `seen` yet; and which
    invariants that is about."""
    about: Array
    """int64[actions, values]: which invariants a value that an event shows is about, see SHOWN_BITS."""
    dirty: Array
    """int32[ledgers]: the ledgers that changed since the last check, the first counts[DIRTY_LEDGERS] entries."""
    reports: Array
    """int64[ledgers, 4]: the terms of the memory check that each ledger was counted with."""
    journal: Array
    """int64[entries, 3] of (what and how many, first place, value before or change), see JOURNAL_WHAT."""
    scratch: Array
    """int32[3, longest list]: page lists of the event, one page after the other."""
    new: Array
    """int64[fields]: the ledger behind the event."""
    moves: Array
    """int64[effects, 4] of (effect, three arguments in pages)."""
    answer: Array
    """int64[4]: what a rule answers, see CHECKED; or the four terms of the memory check of one ledger."""


ABSENT = columnar_schema.ABSENT
"""Stands in a table where the event has no such value."""

SETTINGS = (
    "page_size",
    "page_shift",
    "row_width",
    "overlap",
    "spec_v1",
    "spec_v2",
    "drafts",
    "windowed",
    "window",
    "tree",
    "window_followed",
    "longest_chunk",
    "rows",
    "patience",
    "close_patience",
    "retract_patience",
    "abort_patience",
)
"""The configuration. `page_shift`: log2 of the page size, -1 where it is no power of two."""

SETTINGS_AT = {name: place for place, name in enumerate(SETTINGS)}

FIELDS = {name: place for place, name in enumerate(FIELD_NAMES)}
"""Columns of ledgers."""

COLUMNS = {
    name: place
    for place, name in enumerate(
        ("action", "odd", "session", "turn", *FLAGS, *NUMBERS, *PAGE_LISTS_OR_NULL, "kind_bit", "beyond", "shown")
    )
}
"""Rows of table. `odd`: stands in no column and is judged as an event; sessions and turns are numbered
over the whole trace; a page list that may be absent has 1 here if it is there. ABSENT: not in the event. The last three are
filled by the loop, see `next_events.py`."""

LISTS = {name: place for place, name in enumerate((*PAGE_LISTS, *PAGE_LISTS_OR_NULL))}
"""Rows of begins and ends."""

# Events by what the loop does with them.
EVICT, CHECK, ASK_ABORT = ACTIONS.index("evict"), ACTIONS.index("check"), ACTIONS.index(ASKS_ABORT)
FINISH, ABORT, ARRIVE, CREATE = (ACTIONS.index(name) for name in ("finish", "abort", "arrive", "create"))
EXTEND, RESULT, AN_INSERT = (ACTIONS.index(name) for name in ("extend", "result", "insert"))
A_MATCH, A_WINDOW = ACTIONS.index("match"), ACTIONS.index("window")
DECODE, RETRACT = ACTIONS.index(DECODES), ACTIONS.index(RETRACTS)
KINDS_OF_NO_TURN = sum(1 << ACTIONS.index(name) for name in OF_NO_TURN)
KINDS_THAT_JOIN_OR_LEAVE = sum(1 << ACTIONS.index(name) for name in ("extend", *LEAVES))
"""Bit of each event that brings a turn into the batch or takes it out."""
KINDS_THAT_LEAVE = sum(1 << ACTIONS.index(name) for name in LEAVES)
KINDS_THAT_LAUNCH = sum(1 << ACTIONS.index(name) for name in LAUNCHES)
KINDS_THAT_GIVE_A_STEP = sum(1 << ACTIONS.index(name) for name in STEPS_OF_A_TURN)
KINDS_THAT_ADMIT_OR_GIVE_BACK = sum(1 << ACTIONS.index(name) for name in ADMITS_OR_GIVES_BACK)
KINDS_THAT_BRING_NOTHING_ON = sum(1 << ACTIONS.index(name) for name in BRINGS_NOTHING_ON)
KINDS_THAT_GET_ON = sum(1 << ACTIONS.index(name) for name in GETS_ON)
KINDS_THAT_GIVE_UP = sum(1 << ACTIONS.index(name) for name in GIVE_UP)
KINDS_OF_A_LEDGER = sum(1 << ACTIONS.index(name) for name in OF_A_LEDGER)
RULES_OF_LATE_RESULTS = sum(1 << list(RULES).index(name) for name in LATE_RESULTS)
RULES_BY_WHICH_A_TURN_LEAVES = sum(1 << list(RULES).index(name) for name in LEAVES_ITS_SESSION)
KINDS_WITH_ROW = sum(1 << ACTIONS.index(name) for name in WITH_ROW)
"""Bit of each event that names the row of its turn."""

# Effects in moves.
MOVES: dict[type, int] = {TakeRow: 1, Share: 2, Take: 3, Free: 4, FreeWindow: 5, Insert: 6, DropRow: 7}
TAKE_ROW, SHARE, TAKE, FREE_PAGES, FREE_WINDOW, INSERT, DROP_ROW = MOVES.values()
OF_THE_TURN = (Begin, Generate, Succeed, End, AskClose, EndSession)
WITHOUT_PAGES: tuple[type, ...] = (*OF_THE_TURN, Write, Forget, Lock, Unlock, Report)
assert {*MOVES, FreeByLoc, *WITHOUT_PAGES} == set(Effect.__args__)
LARGEST_MOVES = 8
NUMBERS_OF_A_MOVE = 4

# Rows of pages and windows, columns of tables and turns.
OWNER, PINS, WINDOW_OF, MARK, ABOVE, BEHIND_IT, PREFIX_ID = range(7)
"""Above: the page that a page of the tree continues, ROOT or UNKNOWN; behind it: how many pages are known to continue it; the
number of the prefix that ends with it, 0 if none was shown. All three are 0 where a page is not the tree's."""
GOING_BACK, OWNED_BY_NONE, OWNED_BY_TREE, OWNED_FROM = -1, 0, 1, 2
"""Owner of a page: none, the tree, or a ledger: its number + OWNED_FROM. Going back: within an event, until it lists the page."""
BEHIND, WINDOW_MARK = range(2)
ROW, START, CAPACITY, LENGTH, TREE_END, TOUCHED, ENDED_IN, DIRTY, EXERCISED, LAST_PASS, EXCUSED, RETRACTED = range(12)
"""The last three: how many passes there were when the ledger went on last, whether a known deviation was followed in it, and how
often its turn was retracted since it got a token."""
TOLD_LENGTH, TOLD_ID = 12, 13
"""Of the row's prefix of the tree, as an event of its turn told it last: pages (0: none did), and number."""
NO_ROW = -1
NOT_KNOWN = -1
"""What a ledger exercised before, where it has not been weighed yet."""
NEVER_ENDED = -(2**63)
OWN_LEDGER, LEDGER_OF, ELSEWHERE, LATE, ASKED, LAUNCHED, LAUNCHED_BEFORE, IS_AWAITED, CAME = range(9)

# Places in counts.
FREE_COUNT, TREE_COUNT, PROTECTED_COUNT, WINDOW_FREE_COUNT, WINDOW_TREE_COUNT, WINDOW_PROTECTED_COUNT = range(6)
SESSION_HELD, UNCACHED, WINDOW_HELD, WINDOW_UNCACHED = range(6, 10)
EVENTS, PAGES_MOVED, ARENA_TOP, JOURNAL, DIRTY_LEDGERS, EVICTS, CHECKS, LIVE_TURNS = range(10, 18)
FIRST_SEQ, BATCH_STEP, BATCH_FIRST, BATCH_BEFORE, LAST_GIVEN_UP = range(18, 23)
"""The seq of the first event in the arrays; of the batch that was launched last its step and its first launch, and that of the
batch before it; when pages were given up last while their step ran. An event's number is its seq, and one more."""
PASSES, BARREN, PASS_STEP, NEXT_LOOK, IDLE_AT = range(23, 28)
"""What `replay/passes.py` counts."""
ASKS = 28
BESIDE = {"evict": EVICTS, "check": CHECKS, ASKS_ABORT: ASKS}
"""How many events there were of each kind that no rule of a ledger judges."""
AWAITED, AWAITED_BEFORE = 29, 30
"""Launches of the batch, and of batches before it, whose results are awaited."""
UNPLACED_COUNT = 31
"""Pages of the tree of which it is not known what they continue."""
ROWS_IN_USE = 32
FREE_BLOCKS = 33
"""First of 40 places: the first free block of 2^n entries in the arena, + 1."""
COUNTS = FREE_BLOCKS + 40

# What was checked: the bits of invariants, then those of an action's branches.
PLANES = 48
_BITS = {name: 1 << place for place, name in enumerate(COUNTED)}
SEEN_BY_CHECK = sum(_BITS[name] for name in OF_A_CHECK)
SEEN_BY_EVICTION = sum(_BITS[name] for name in OF_EVICTED_PAGES)
SEEN_BY_REUSE = _BITS[OF_REUSE]
SEEN_BY_WINDOW_EVICTION = sum(_BITS[name] for name in OF_EVICTED_WINDOW_PAGES)
CHECK_RULE, EVICT_RULE = list(RULES).index("check"), len(RULES)
# What was shown: a bit for each value that was, then one for each that was not. The rows of actions follow those above.
SHOWN_ROWS = EVICT_RULE + 1
SHOWN_BITS = {name: place for place, name in enumerate(SHOWN)}
NOT_SHOWN_BITS = {name: len(SHOWN) + place for place, name in enumerate(SHOWN)}
assert 2 * len(SHOWN) < 63
CHECK_SHOWN_ROW = SHOWN_ROWS + CHECK_RULE
SEEN_TERMS, SEEN_NO_TERMS = 1 << SHOWN_BITS[TERMS], 1 << NOT_SHOWN_BITS[TERMS]
SEEN_BUSY, SEEN_NO_BUSY = 1 << SHOWN_BITS[SHOWN_BUSY], 1 << NOT_SHOWN_BITS[SHOWN_BUSY]

ROWS_SHOWN = tuple(
    next(COLUMNS[column] for column in (f"after_{name}", f"param_{name}", name, f"{name}_total") if column in COLUMNS)
    for name in SHOWN
    if name != STEP
)
"""The row of the table of each value that an event may show, in the order of their bits. A step stands in no row."""
assert SHOWN[-1] == STEP
SHOWS_STEP = 1 << SHOWN_BITS[STEP]
BITS_AFTER = sum(1 << SHOWN_BITS[column.removeprefix("after_")] for column in AFTER)
"""Those that an event shows of its ledger."""

# What a rule answers, and the functions of the rules that the loop calls, in the order of their addresses.
CHECKED, EXERCISES, SHOWS = range(3)
"""Places of `answer`: what the step checks; which invariants say something of the ledger after it (before it, when the rule is
asked); and the values that the event shows."""
BROKEN_BIT = 32
"""The first bit of a broken invariant where invariants are weighed; below are those that are exercised."""
JUDGE, WEIGH, REPORT, TERMS_ARE_RIGHT, STILL_NEEDS = range(5)

# Kinds of columns that are filled into the arrays.
NUMBER_COLUMN, FLAG_COLUMN, STEP_COLUMN = range(3)

# Why the loop came back before the end.
ALL_JUDGED, NOT_CLEAN, NEEDS_ROOM = range(3)

# Columns and lists that the loop itself reads.
ACTION, ODD, SESSION, TURN = (COLUMNS[name] for name in ("action", "odd", "session", "turn"))
KIND_BIT, BEYOND, SHOWN_HERE = (COLUMNS[name] for name in ("kind_bit", "beyond", "shown"))
AT_ONCE = 256
"""How many events are looked at column by column before they are judged."""
ROW_SEEN, ADMITTED, TERMS_SEEN = (COLUMNS[name] for name in ("row", "param_admitted", "terms_total"))
PREFIX_ID_SEEN, SHARED_SEEN, OWN_CHECK_OK = (
    COLUMNS[name] for name in ("param_prefix_id", "shared", "param_own_check_ok")
)
SHOWS_PREFIX_ID = 1 << SHOWN_BITS["prefix_id"]
WINDOW_TERMS_SEEN = COLUMNS["window_terms_total"]
SEQ_LEN, BUSY, IDLE_PASSES = (COLUMNS[f"param_{name}"] for name in ("seq_len", "busy", "idle_passes"))
ORIGIN_LEN, FILL_LEN = COLUMNS["param_origin_len"], COLUMNS["param_fill_len"]
FREE_LIST_SEEN, WINDOW_FREE_LIST_SEEN = COLUMNS["free_list"], COLUMNS["window_free_list"]
ALLOC, FREED, WINDOW_ALLOC, WINDOW_FREED = (LISTS[name] for name in ("alloc", "free", "window_alloc", "window_free"))
SHARED, FREE_LIST, WINDOW_FREE_LIST = (LISTS[name] for name in ("shared", "free_list", "window_free_list"))
FOLLOWED, LONGEST_CHUNK, OVERLAP = (SETTINGS_AT[name] for name in ("window_followed", "longest_chunk", "overlap"))
PAGE_SIZE, ROW_WIDTH, ROWS, WINDOW = (SETTINGS_AT[name] for name in ("page_size", "row_width", "rows", "window"))
PATIENCE, CLOSE_PATIENCE, RETRACT_PATIENCE, ABORT_PATIENCE = (
    SETTINGS_AT[name] for name in ("patience", "close_patience", "retract_patience", "abort_patience")
)
# Fields of a ledger that the loop itself reads; a turn in a phase from LIVE_FROM on has a row.
PHASE, PREFIX_LEN, PENDING = (FIELDS[name] for name in ("phase", "prefix_len", "pending"))
CLOSING, SLOT_HELD = FIELDS["closing"], FIELDS["slot_held"]
LIVE_FROM, NO_TURN, IN_THE_QUEUE, DECODING = PREFILL, NONE, WAITING, RUNNING
# Rows of scratch.
SCRATCH_ALLOC, SCRATCH_WINDOW, SCRATCH_SHARED = range(3)
# What an entry of the journal is about: a row of pages (their numbers), one of windows, a place of the row's page table; or
# many at once: the owners or the pins of the pages in such places, the owners of a run of pages.
JOURNAL_WINDOWS, JOURNAL_ARENA, JOURNAL_OWNERS, JOURNAL_PINS, JOURNAL_RUN = 7, 9, 10, 11, 12
JOURNAL_WHAT, JOURNAL_TIMES = 15, 4
"""The bits that say so; above them stands how many."""
