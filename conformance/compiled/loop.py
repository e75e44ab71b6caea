"""The loop over events in arrays: follow one after the other as long as they are clean.

Compiled together with `book.py`, `places.py`, `pages.py` and what is printed from the specification (`rules.py`,
`weighing.py`): `judge_ledger`, `weigh_invariants`, `weigh_changed`, `report_ledger`, `terms_are_right`. An event that is not
clean leaves everything as it was before it.
"""

from __future__ import annotations

from kvproof.conformance.compiled import layout as at
from kvproof.conformance.compiled.book import length_of, totals, undo
from kvproof.conformance.compiled.in_flight import (
    await_no_more,
    launch,
    leave,
    let_go,
    may_be_launched,
    reuse,
    runs_twice,
    use,
)
from kvproof.conformance.compiled.layout import Array, EventArrays, StateArrays
from kvproof.conformance.compiled.liveness import ask_abort, begins_a_pass, goes_on, goes_round, runs_on, stands_still
from kvproof.conformance.compiled.next_events import concerned, look_at
from kvproof.conformance.compiled.pages import evict_pages, lists_what_is_free, lost_window, move_pages
from kvproof.conformance.compiled.rule_calls import ask


def bring_terms_up_to_date(events: EventArrays, state: StateArrays) -> None:
    """The sums of what the ledgers report: those that changed since the last check are counted anew."""
    ledgers, counts, reports, answer = state.ledgers, state.counts, state.reports, state.answer
    for n in range(counts[at.DIRTY_LEDGERS]):
        ledger = state.dirty[n]
        state.tables[ledger, at.DIRTY] = 0
        in_use = False
        for place in range(ledgers.shape[1]):
            in_use = in_use or ledgers[ledger, place] != 0
        if in_use:
            ask(state, at.REPORT, 0, ledger, events, 0)
        for term in range(4):
            held = answer[term] if in_use else 0
            counts[at.SESSION_HELD + term] += held - reports[ledger, term]
            reports[ledger, term] = held
    counts[at.DIRTY_LEDGERS] = 0


def check_memory(event: int, events: EventArrays, state: StateArrays) -> bool:
    """The terms that the implementation read, and its free lists, are the true ones."""
    table, settings, counts = events.table, state.settings, state.counts
    if table[at.OWN_CHECK_OK, event] == 0:  # right terms add up
        return False
    if table[at.IDLE_PASSES, event] != at.ABSENT or (table[at.BUSY, event] == 0 and counts[at.LIVE_TURNS] > 0):
        return False
    if table[at.TERMS_SEEN, event] != at.ABSENT:
        bring_terms_up_to_date(events, state)
        if ask(state, at.TERMS_ARE_RIGHT, 0, 0, events, event) == 0:
            return False
    elif table[at.WINDOW_TERMS_SEEN, event] != at.ABSENT:
        return False
    if table[at.FREE_LIST_SEEN, event] != at.ABSENT and not lists_what_is_free(
        events, at.FREE_LIST, event, state.pages, at.OWNER, at.MARK, counts[at.FREE_COUNT]
    ):
        return False
    return (
        settings[at.FOLLOWED] == 0
        or table[at.WINDOW_FREE_LIST_SEEN, event] == at.ABSENT
        or lists_what_is_free(
            events, at.WINDOW_FREE_LIST, event, state.windows, at.BEHIND, at.WINDOW_MARK, counts[at.WINDOW_FREE_COUNT]
        )
    )


def count_seen(seen: Array, rule: int, bits: int) -> None:
    """Add one to the count of each bit. Place n of a row holds bit n of all counts, so they are added at once."""
    place = 0
    while bits != 0:
        carried = seen[rule, place] & bits
        seen[rule, place] ^= bits
        bits = carried
        place += 1


def count_run(seen: Array, row: int, bits: int, times: int) -> None:
    """Add so many to the count of each bit."""
    first = 0
    while times != 0:
        if times & 1 == 1:
            carried, place = bits, first
            while carried != 0:
                both = seen[row, place] & carried
                seen[row, place] ^= carried
                carried = both
                place += 1
        times >>= 1
        first += 1


def came_otherwise(kind: int, is_another: int, turn: int, event: int, events: EventArrays, state: StateArrays) -> bool:
    """Whether a turn that its session refused has another input here than it came with."""
    if turn < 0 or state.turns[turn, at.CAME] == 0:
        return False
    shown = at.ABSENT
    if kind == at.ARRIVE:
        shown = events.table[at.ORIGIN_LEN, event]
    elif kind == at.A_MATCH and is_another == 1:
        shown = events.table[at.FILL_LEN, event]
    return shown != at.ABSENT and shown + 1 != state.turns[turn, at.CAME]


def name_in_use(turn: int, state: StateArrays) -> bool:
    """Whether a turn of this name is not over."""
    if turn < 0:
        return False
    whose = state.turns[turn, at.LEDGER_OF] - 1
    if whose >= 0 and state.turns[turn, at.ELSEWHERE] == 0 and state.ledgers[whose, at.PHASE] != at.NO_TURN:
        return True
    return bool(state.ledgers[state.turns[turn, at.OWN_LEDGER], at.PHASE] != at.NO_TURN)


def judge_events(first: int, last: int, events: EventArrays, state: StateArrays) -> tuple[int, int]:
    """Judge events first to last - 1; why it stopped, and the event at which it did."""
    table, settings, counts, journal, moves = events.table, state.settings, state.counts, state.journal, state.moves
    tables, turns, new, seen, answer = state.tables, state.turns, state.new, state.seen, state.answer
    may_list, shown_last = state.list_limits, state.shown_last
    looked_to = first
    for event in range(first, last):
        if event == looked_to:
            looked_to = min(event + at.AT_ONCE, last)
            look_at(event, looked_to, events, state)
        kind = int(table[at.ACTION, event])
        if table[at.ODD, event] == 1 or table[at.BEYOND, event] != 0:
            return at.NOT_CLEAN, event
        n_alloc = length_of(events, at.ALLOC, event)
        n_freed = length_of(events, at.FREED, event)
        n_window_alloc = length_of(events, at.WINDOW_ALLOC, event)
        n_window_freed = length_of(events, at.WINDOW_FREED, event)
        n_moved = n_alloc + n_freed + n_window_alloc + n_window_freed
        if n_moved > 0 and (
            (n_alloc > 0 and (may_list[at.ALLOC] >> kind) & 1 == 0)
            or (n_freed > 0 and (may_list[at.FREED] >> kind) & 1 == 0)
            or (n_window_alloc > 0 and (may_list[at.WINDOW_ALLOC] >> kind) & 1 == 0)
            or (n_window_freed > 0 and (may_list[at.WINDOW_FREED] >> kind) & 1 == 0)
        ):
            return at.NOT_CLEAN, event
        counts[at.JOURNAL] = 0
        if kind == at.EVICT:
            if table[at.SESSION, event] >= 0 or table[at.TURN, event] >= 0:
                return at.NOT_CLEAN, event
            if 4 * (n_freed + n_window_freed) + 64 > journal.shape[0]:
                return at.NEEDS_ROOM, event
            before = totals(counts)
            if not evict_pages(event, events, state):
                undo(state, 0, before)
                return at.NOT_CLEAN, event
            counts[at.EVICTS] += 1
            if n_freed > 0:
                count_seen(seen, at.EVICT_RULE, at.SEEN_BY_EVICTION)
            if n_window_freed > 0 and settings[at.FOLLOWED] != 0:
                count_seen(seen, at.EVICT_RULE, at.SEEN_BY_WINDOW_EVICTION)
        elif kind == at.CHECK:
            if not check_memory(event, events, state):
                return at.NOT_CLEAN, event
            counts[at.CHECKS] += 1
            shows_busy = at.SEEN_BUSY if table[at.BUSY, event] != at.ABSENT else at.SEEN_NO_BUSY
            if table[at.TERMS_SEEN, event] != at.ABSENT:
                count_seen(seen, at.CHECK_RULE, at.SEEN_BY_CHECK)
                count_seen(seen, at.CHECK_SHOWN_ROW, at.SEEN_TERMS | shows_busy)
            else:
                count_seen(seen, at.CHECK_SHOWN_ROW, at.SEEN_NO_TERMS | shows_busy)
        elif kind == at.ASK_ABORT:
            if not ask_abort(event, events, state):
                return at.NOT_CLEAN, event
            counts[at.ASKS] += 1
        else:
            session, turn = int(table[at.SESSION, event]), int(table[at.TURN, event])
            is_another = 0
            if session >= 0:
                ledger = session
                is_another = int(kind != at.CREATE and turn >= 0 and turns[turn, at.ELSEWHERE] != 0)
                is_its_turn = turn < 0 or is_another != 0 or turns[turn, at.LEDGER_OF] - 1 == ledger
                if kind != at.CREATE and not is_its_turn:
                    return at.NOT_CLEAN, event
                if turn < 0 and (at.KINDS_OF_NO_TURN >> kind) & 1 == 0:
                    return at.NOT_CLEAN, event
            elif turn < 0:
                return at.NOT_CLEAN, event
            elif kind == at.ARRIVE or turns[turn, at.LEDGER_OF] == 0:
                ledger = int(turns[turn, at.OWN_LEDGER])
            else:
                ledger = int(turns[turn, at.LEDGER_OF]) - 1
                if turns[turn, at.ELSEWHERE] != 0 and ledger != turns[turn, at.OWN_LEDGER]:
                    return at.NOT_CLEAN, event
            if kind in (at.CREATE, at.ARRIVE) and name_in_use(turn, state):
                return at.NOT_CLEAN, event
            row_before, row_seen = tables[ledger, at.ROW], table[at.ROW_SEEN, event]
            if (
                is_another == 0
                and row_seen != at.ABSENT
                and row_seen != row_before
                and (row_before != at.NO_ROW or kind != at.EXTEND)
            ):
                return at.NOT_CLEAN, event
            old = state.ledgers[ledger]
            if kind == at.EXTEND and 0 < settings[at.LONGEST_CHUNK] < table[at.SEQ_LEN, event] - old[at.PREFIX_LEN]:
                return at.NOT_CLEAN, event
            if kind == at.EXTEND and row_before != at.NO_ROW and lost_window(ledger, old[at.PREFIX_LEN], state):
                return at.NOT_CLEAN, event
            if kind == at.CREATE and tables[ledger, at.EXCUSED] != 0:
                return at.NOT_CLEAN, event
            if runs_on(kind, turn, state):
                return at.NOT_CLEAN, event
            if came_otherwise(kind, is_another, turn, event, events, state):
                return at.NOT_CLEAN, event
            begins = begins_a_pass(kind, event, events, state)
            if goes_round(kind, ledger, state) or (begins and stands_still(ledger, state)):
                return at.NOT_CLEAN, event
            for place in range(new.shape[0]):
                new[place] = old[place]
            if tables[ledger, at.EXERCISED] == at.NOT_KNOWN:
                weighed = ask(state, at.WEIGH, 0, ledger, events, event)
                tables[ledger, at.EXERCISED] = weighed & ((1 << at.BROKEN_BIT) - 1)
            answer[at.EXERCISES] = tables[ledger, at.EXERCISED]
            rule = ask(state, at.JUDGE, 2 * kind + is_another, ledger, events, event)
            if rule < 0:
                return at.NOT_CLEAN, event
            is_late = kind == at.RESULT and (at.RULES_OF_LATE_RESULTS >> rule) & 1 == 1
            if is_late and turns[turn, at.LATE] == 0:
                return at.NOT_CLEAN, event
            exercised, shown = answer[at.EXERCISES], answer[at.SHOWS]
            if shown != shown_last[rule, 0]:
                count_run(seen, at.SHOWN_ROWS + rule, shown_last[rule, 0], shown_last[rule, 1])
                shown_last[rule, 0], shown_last[rule, 1] = shown, 0
                shown_last[rule, 2] = concerned(rule, shown, state)
            checked = answer[at.CHECKED] | (exercised & shown_last[rule, 2])
            with_row = (at.KINDS_WITH_ROW >> kind) & 1 == 1
            launches = is_another == 0 and (at.KINDS_THAT_LAUNCH >> kind) & 1 == 1
            if (launches and not may_be_launched(turn, event, events, state)) or (
                kind == at.RESULT and runs_twice(turn, state)
            ):
                return at.NOT_CLEAN, event
            taken_over = -1
            if settings[at.OVERLAP] != 0 and is_another == 0:
                if launches:
                    taken_over = reuse(row_seen, event, events, state)
                    if taken_over < 0:
                        return at.NOT_CLEAN, event
                    if taken_over > 0:
                        checked |= at.SEEN_BY_REUSE
                elif row_before == at.NO_ROW:
                    pass
                elif (at.KINDS_THAT_GIVE_UP >> kind) & 1 == 1 and (n_freed > 0 or kind != at.AN_INSERT):
                    let_go(ledger, event, events, state)
                elif kind == at.RESULT and new[at.PENDING] == 0:
                    state.launched[row_before] = 0
            names_a_prefix = table[at.SHOWN_HERE, event] & at.SHOWS_PREFIX_ID != 0
            if n_moved > 0 or moves[0, 0] != 0 or names_a_prefix or length_of(events, at.SHARED, event) > 0:
                at_most = n_moved + 2 * (tables[ledger, at.LENGTH] + length_of(events, at.SHARED, event))
                if (
                    12 * at_most + 64 > journal.shape[0]
                    or counts[at.ARENA_TOP] + 4 * at_most + 64 > state.arena.shape[0]
                ):
                    return at.NEEDS_ROOM, event
                before = totals(counts)
                if not move_pages(ledger, with_row, event, events, state):
                    undo(state, ledger, before)
                    return at.NOT_CLEAN, event
            elif (
                with_row and tables[ledger, at.ROW] != at.NO_ROW and table[at.ROW_SEEN, event] != tables[ledger, at.ROW]
            ):
                return at.NOT_CLEAN, event
            if launches:
                launch(turn, new[at.PHASE] == at.DECODING, event, events, state)
                if taken_over >= 0:
                    use(row_seen, taken_over, event, events, state)
            if is_another == 0:
                if kind == at.RESULT and new[at.PENDING] == 0:
                    await_no_more(turn, state)
                elif (at.KINDS_THAT_LEAVE >> kind) & 1 == 1:
                    leave(turn, state)
                goes_on(kind, ledger, begins, is_late, event, events, state)
            if is_late:
                turns[turn, at.LATE] -= 1
            elif (at.KINDS_THAT_JOIN_OR_LEAVE >> kind) & 1 == 1:
                counts[at.LIVE_TURNS] += int(new[at.PHASE] >= at.LIVE_FROM) - int(old[at.PHASE] >= at.LIVE_FROM)
                if kind != at.EXTEND and is_another == 0:
                    turns[turn, at.LATE] += old[at.PENDING]
                elif kind == at.EXTEND and settings[at.OVERLAP] != 0:
                    turns[turn, at.LATE] += old[at.PENDING] + 1 - new[at.PENDING]
            for place in range(new.shape[0]):
                old[place] = new[place]
            tables[ledger, at.EXERCISED] = exercised
            if new[at.PHASE] == at.NO_TURN:
                tables[ledger, at.TOLD_LENGTH] = 0
            state.rules[rule] += 1
            count_seen(seen, rule, checked)
            shown_last[rule, 1] += 1
            tables[ledger, at.TOUCHED] = counts[at.EVENTS] + 1
            if tables[ledger, at.DIRTY] == 0:
                tables[ledger, at.DIRTY] = 1
                state.dirty[counts[at.DIRTY_LEDGERS]] = ledger
                counts[at.DIRTY_LEDGERS] += 1
            if kind in (at.FINISH, at.ABORT):
                tables[ledger, at.ENDED_IN] = events.steps[event]
            if turn >= 0:
                if turns[turn, at.ASKED] != 0:
                    if kind in (at.FINISH, at.ABORT):
                        turns[turn, at.ASKED] = 0
                    elif (at.KINDS_THAT_GIVE_A_STEP >> kind) & 1 == 1:
                        turns[turn, at.ASKED] += 1
                if session < 0 or (kind == at.CREATE and table[at.ADMITTED, event] != 0):
                    turns[turn, at.LEDGER_OF] = ledger + 1
                if (at.RULES_BY_WHICH_A_TURN_LEAVES >> rule) & 1 == 1:
                    turns[turn, at.LEDGER_OF] = turns[turn, at.OWN_LEDGER] + 1
                if kind == at.CREATE:
                    turns[turn, at.ELSEWHERE] = 0
                    turns[turn, at.CAME] = max(table[at.ORIGIN_LEN, event], 0) + 1
                elif kind in (at.FINISH, at.ABORT, at.ARRIVE):
                    turns[turn, at.CAME] = 0
                if kind in (at.FINISH, at.ABORT) or table[at.ADMITTED, event] == 0:
                    turns[turn, at.ELSEWHERE] = 1
        counts[at.EVENTS] += 1
        counts[at.PAGES_MOVED] += n_moved
    return at.ALL_JUDGED, last
