"""What was read by hand: mutants that no check notices, each with the reason. `make mutants` reads it.

A word that no mutant answers to, and one on a mutant that a check does notice, make the run fail.
"""

from __future__ import annotations

from dataclasses import dataclass

EQUIVALENT, ALLOWED, MISSED = "equivalent", "allowed", "missed"


@dataclass(frozen=True)
class Word:
    """On mutants of one function, for one reason. `mutants`: as the results name them behind path and function."""

    path: str
    function: str
    mutants: tuple[str, ...]
    verdict: str
    reason: str


IN_ORDER = (
    "The next turn begins a step earlier. Forwards run in the order in which they were launched, so "
    "that what the step in flight"
    "still writes into the row comes before what the next turn writes there; the rules allow either, "
    "and outputs are the same."
)
OVER_OR_RESET = "The request is over, or `reset_for_retract` clears the field right behind this."
ONLY_ITS_LENGTH = "The prefix of a row that is kept is not written again: only its length is used."
NEVER_NONE = "The callee walks up from the node and stops at none at once: it asks itself."
WHO_IS_EVICTED = "Which unlocked leaf is evicted first, and that no more are than were asked for, no rule says."
TELLS_NOTHING = "An eviction of no page is carried out and told. It changes nothing."
WHO_GOES_BACK = "Who is sent back to the queue, and after which result, no rule says."
HOW_MUCH_A_STEP_DOES = "How much is prefilled in one step, and how many run at once, no rule says."
WHAT_IS_CHARGED = (
    "An admission is charged less than its next round, or more: others are retracted earlier, or it "
    "waits longer. Asked for is only"
    "that all come to an end, and they do."
)
HOW_SOON = "The request ends with its next result, not at once: how soon an abort is carried out, no rule says."
ROOM_OF_A_PAGE = (
    "One page more of the window is kept than the next token looks back to, so that a token further "
    "is still right; and one that"
    "gives back less gives it back later."
)
LONGER_THAN_ASKED = "What was asked for is compared with what the implementation itself limited it to."
PRIVATE_GUARD = "A guard against a mistake of the caller, which asks for no more than there is."

SESSION, RADIX, RADIX_CACHE = "impl/session.py", "impl/radix.py", "impl/radix_cache.py"
CHUNK_CACHE, TREE, EVICTION = "impl/chunk_cache.py", "impl/window_tree.py", "impl/window_eviction.py"
SCHEDULER, PREFILL, DECODE = "impl/scheduler.py", "impl/prefill.py", "impl/decode.py"
RESULTS, ENDS = "impl/results.py", "impl/ends.py"
STATE, SGLANG = "impl/state.py", "sglang 0.5.11 streaming_session.py"
REQUEST, POOLS, WINDOW_POOL = "impl/request.py", "impl/pools.py", "impl/window_pool.py"

WORDS: tuple[Word, ...] = (
    Word(SESSION, "Session.awaits_late_result", ("off by one: 0 -> 1",), ALLOWED, IN_ORDER),
    Word(
        SESSION,
        "Session._clear_marker",
        (
            "fix condition: self.turn_in_flight is not None and self.turn_in_flight.results_due -> False",
            "flip comparison: self.turn_in_flight is not None -> self.turn_in_flight is None",
            "drop operand: self.turn_in_flight.results_due -> (dropped)",
            "drop statement: self.turn_before = self.turn_in_flight -> (dropped)",
        ),
        ALLOWED,
        IN_ORDER,
    ),
    Word(
        SESSION,
        "Session._clear_marker",
        ("drop operand: self.turn_in_flight is not None -> (dropped)",),
        EQUIVALENT,
        "Whoever ends a turn ends the one in flight: there is one.",
    ),
    Word(
        SESSION,
        "StreamingSessionCache.find_active_slot",
        ("drop operand: slot.is_holding_kv -> (dropped)",),
        EQUIVALENT,
        "A slot in the table has a row: saving sets it, and release takes the slot out of the table.",
    ),
    Word(
        SESSION,
        "StreamingSessionCache.abort_turn",
        ("fix condition: slot is None -> True",),
        EQUIVALENT,
        "A later turn's lengths go into its slot before the release; they are never below the slot's, from which they began.",
    ),
    Word(
        SESSION,
        "SessionController.must_close_now",
        ("drop operand: not session.inflight -> (dropped)",),
        EQUIVALENT,
        "It is asked where a turn has just ended, so that none is in flight.",
    ),
    Word(
        CHUNK_CACHE,
        "ChunkCache.match_prefix",
        ("drop statement: req.last_node = None -> (dropped)",),
        EQUIVALENT,
        "Without a tree no request ever has a node.",
    ),
    Word(
        CHUNK_CACHE,
        "ChunkCache.match_prefix",
        ("drop statement: req.lent = False -> (dropped)",),
        EQUIVALENT,
        "A turn that was lent a row keeps it until it ends or is retracted, which clears the flag.",
    ),
    Word(
        CHUNK_CACHE,
        "ChunkCache.cache_unfinished_req",
        ("off by one: self._row_of(req) -> self._row_of(req) - 1",),
        EQUIVALENT,
        ONLY_ITS_LENGTH,
    ),
    Word(
        CHUNK_CACHE,
        "ChunkCache._return_row",
        ("drop statement: req.req_pool_idx = None -> (dropped)",),
        EQUIVALENT,
        OVER_OR_RESET,
    ),
    Word(RADIX_CACHE, "RadixCache.lock", ("fix condition: node is not None -> True",), EQUIVALENT, NEVER_NONE),
    Word(RADIX_CACHE, "RadixCache.unlock", ("fix condition: node is not None -> True",), EQUIVALENT, NEVER_NONE),
    Word(
        RADIX_CACHE,
        "RadixCache.window_evictable_size",
        ("fix condition: isinstance(self.tree, WindowTree) -> True",),
        EQUIVALENT,
        "It is asked only where there is a window pool, and there the tree is such a one.",
    ),
    Word(
        RADIX_CACHE,
        "RadixCache.cache_finished_req",
        ("off by one: 0 -> -1",),
        EQUIVALENT,
        "Where nothing is inserted the number is not looked at.",
    ),
    Word(
        RADIX_CACHE,
        "RadixCache.release_lock",
        ("drop statement: req.last_node = None -> (dropped)",),
        EQUIVALENT,
        OVER_OR_RESET,
    ),
    Word(
        RADIX,
        "RadixTree.match",
        ("flip comparison: done < len(key) -> done <= len(key)",),
        EQUIVALENT,
        "One round more looks for a child whose first page is empty: there is none.",
    ),
    Word(
        RADIX,
        "RadixTree.insert",
        ("drop statement: leaf.last_access = self._clock -> (dropped)",),
        ALLOWED,
        WHO_IS_EVICTED,
    ),
    Word(RADIX, "RadixTree._tick", ("drop statement: self._clock += 1 -> (dropped)",), ALLOWED, WHO_IS_EVICTED),
    Word(
        RADIX,
        "RadixTree.evict",
        ("other sign: evicted += len(leaf.key) -> evicted -= len(leaf.key)",),
        ALLOWED,
        WHO_IS_EVICTED,
    ),
    Word(RADIX, "RadixTree.evict", ("drop operand: heap -> (dropped)",), EQUIVALENT, PRIVATE_GUARD),
    Word(
        RADIX,
        "RadixTree._up_from",
        ("drop operand: step is not None -> (dropped)",),
        EQUIVALENT,
        "Every way up ends at the root, which is asked for beside it.",
    ),
    Word(
        RADIX,
        "RadixTree._up_from",
        ("drop operand: step is not self.root -> (dropped)",),
        EQUIVALENT,
        "The root is met as well: it has no tokens, so that no total changes, and it is never evicted.",
    ),
    Word(
        TREE,
        "WindowTree.evict_window",
        ("drop operand: self._window_len(node) -> (dropped)",),
        EQUIVALENT,
        "A node without window pages gives none back, and is no leaf: such leaves are dropped with their last page.",
    ),
    Word(
        TREE,
        "WindowTree.evict_window",
        ("fix condition: taken >= num_tokens -> False", "flip comparison: taken >= num_tokens -> taken > num_tokens"),
        ALLOWED,
        WHO_IS_EVICTED,
    ),
    Word(
        TREE,
        "WindowTree._reusable_len",
        ("swap arguments: ends * page_size - self._pool.window, 0 -> 0, ends * page_size - self._pool.window",),
        EQUIVALENT,
        "The larger of two is the same in either order.",
    ),
    Word(
        EVICTION,
        "evict_live_windows",
        ("fix condition: state.window_pool is not None -> True",),
        EQUIVALENT,
        "`evict_window` asks the same.",
    ),
    Word(
        EVICTION,
        "evict_window",
        (
            "off by one: req.swa_evicted_seqlen -> req.swa_evicted_seqlen - 1",
            "flip comparison: end <= start -> end < start",
        ),
        ALLOWED,
        TELLS_NOTHING,
    ),
    Word(
        REQUEST,
        "Request.reset_for_retract",
        ("drop statement: self.is_chunked = 0 -> (dropped)",),
        EQUIVALENT,
        "Who is retracted has output, so that the results of all its chunks are in.",
    ),
    Word(
        REQUEST,
        "Request.reset_for_retract",
        ("drop statement: self.prefix_indices = NO_INDICES -> (dropped)",),
        EQUIVALENT,
        "It is matched before it runs again, which sets them.",
    ),
    Word(
        POOLS,
        "KVAllocator._take",
        ("fix condition: count > len(self._free_pages) -> False",),
        EQUIVALENT,
        PRIVATE_GUARD,
    ),
    Word(
        POOLS,
        "RowPool.alloc",
        (
            "swap twin: self._free_slots.popleft() -> pop",
            "swap twin: self._free_slots.pop() -> popleft",
            "flip comparison: self._order == 'fifo' -> self._order != 'fifo'",
        ),
        ALLOWED,
        "Which free row is taken, no rule says.",
    ),
    Word(
        POOLS,
        "RowPool.write",
        ("fix condition: len(kv_indices) == 0 -> False", "drop statement: return -> (dropped)"),
        EQUIVALENT,
        "To write nothing changes nothing.",
    ),
    Word(
        WINDOW_POOL,
        "WindowAllocator._take",
        ("fix condition: count > len(self._free_window_pages) -> False",),
        EQUIVALENT,
        PRIVATE_GUARD,
    ),
    Word(
        TREE,
        "WindowTree.heal",
        ("drop statement: self.window_protected_size += healed -> (dropped)",),
        EQUIVALENT,
        "A node that a window lock protects lacks no page: nobody builds on a match that lacks one.",
    ),
    Word(
        STATE,
        "EngineState.obtainable_pages",
        (
            "off by one: min(pages, self.window_pool.available_window_pages + "
            "self.prefixes.window_evictable_size // page_size)"
            "-> min(pages, self.window_pool.available_window_pages + self.prefixes.window_evictable_size // page_size) - 1",
        ),
        ALLOWED,
        "A page less is counted on than there is: who is admitted waits a little longer.",
    ),
    Word(
        STATE,
        "EngineState.make_available",
        (
            "other sign: pages - self.allocator.available_pages -> pages + self.allocator.available_pages",
            "other sign: pages - self.window_pool.available_window_pages -> pages + self.window_pool.available_window_pages",
        ),
        ALLOWED,
        WHO_IS_EVICTED,
    ),
    Word(
        STATE,
        "EngineState.make_available",
        (
            "flip comparison: missing > 0 -> missing >= 0",
            "off by one: 0 -> -1",
            "flip comparison: missing > 0 -> missing >= 0 (2)",
            "fix condition: evicted -> True",
        ),
        ALLOWED,
        TELLS_NOTHING,
    ),
    Word(SGLANG, "_is_streaming", ("line 113: drop operand",), EQUIVALENT, "It is only ever asked of a request."),
    Word(
        SGLANG,
        "_is_streaming",
        ("line 113: drop operand (3)",),
        MISSED,
        "No session of another kind, which does not stream, is driven.",
    ),
    Word(
        SGLANG,
        "StreamingSession.any_holding_kv",
        ("line 178: swap twin",),
        ALLOWED,
        "It only decides whether the release passes over a check of its own.",
    ),
    Word(
        SGLANG,
        "StreamingSession.find_active_slot",
        ("line 206: drop operand (2)",),
        EQUIVALENT,
        "A slot in the table has a row.",
    ),
    Word(
        SGLANG,
        "StreamingSession.try_match_prefix",
        ("line 252: swap arguments",),
        EQUIVALENT,
        "Slot and request hold the same lengths there: one was just restored from the other.",
    ),
    Word(
        SGLANG,
        "StreamingSession.try_cache_finished_req",
        ("line 310: fix condition (2)",),
        EQUIVALENT,
        "Whoever finishes has that length set.",
    ),
    Word(
        SGLANG,
        "StreamingSession.try_cache_finished_req",
        ("line 319: drop statement",),
        EQUIVALENT,
        "The release's check passes over a request without a row just as well, and nobody else reads the flags.",
    ),
    Word(
        SGLANG,
        "StreamingSession.try_cache_unfinished_req",
        ("line 336: flip flag",),
        EQUIVALENT,
        "The conversion to another type makes a copy anyway.",
    ),
    Word(
        SGLANG, "StreamingSession.release_session", ("line 386: other sign",), EQUIVALENT, "The number is only logged."
    ),
    Word(
        SGLANG,
        "StreamingSession.release_session",
        ("line 393: flip comparison",),
        MISSED,
        "No run closes a session whose lock in the window tree ends inside of a path.",
    ),
    Word(
        SCHEDULER,
        "Scheduler.submit_turn",
        ("flip flag: False -> True",),
        MISSED,
        "A turn that is refused is told to have finished. Nobody compares what a refused turn is told.",
    ),
    Word(
        SCHEDULER,
        "Scheduler.abort",
        (
            "drop operand: req.results_due -> (dropped)",
            "drop operand: self._has_results_to_take -> (dropped)",
        ),
        ALLOWED,
        HOW_SOON,
    ),
    Word(
        SCHEDULER,
        "Scheduler._launch",
        ("drop statement: self._launched_now = True -> (dropped)",),
        ALLOWED,
        "Results are taken in the step that launched them, as without overlap.",
    ),
    Word(
        SCHEDULER,
        "Scheduler.step",
        ("fix condition: self.config.check_every_step -> False",),
        ALLOWED,
        "A scenario that was asked for a check after each step tells none. What was not checked, the "
        "coverage says, and no rule.",
    ),
    Word(
        SCHEDULER,
        "Scheduler.submit",
        ("flip comparison: len(token_ids) > self.config.max_input_len -> len(token_ids) >= self.config.max_input_len",),
        MISSED,
        "A prompt that just fits is refused as too long. Whether it was too long, only sessions' turns are asked.",
    ),
    Word(
        STATE,
        "EngineState.slot_row",
        ("fix condition: slot is not None -> False",),
        ALLOWED,
        "A close does not tell which row it returns. The pages that it frees say so, and no rule needs it.",
    ),
    Word(
        STATE,
        "EngineState.back",
        ("other sign: start + 1 -> start - 1",),
        EQUIVALENT,
        "A decode takes its one page as an extend does, by which it gets the same index.",
    ),
    Word(
        RADIX,
        "RadixTree._common_len",
        ("off by one: start + len(key) -> start + len(key) + 1",),
        EQUIVALENT,
        "A short cut is not taken; token by token comes to the same.",
    ),
    Word(
        PREFILL,
        "Prefill.batch",
        (
            "drop operand: len(state.running) + len(batch) < state.config.max_batch -> (dropped)",
            "other sign: budget - spent -> budget + spent",
        ),
        ALLOWED,
        HOW_MUCH_A_STEP_DOES,
    ),
    Word(
        PREFILL,
        "Prefill._budget",
        (
            "fix condition: config.mixed_chunk -> True",
            "swap twin: max(config.chunked_prefill_size - riders, config.page_size) -> min",
        ),
        ALLOWED,
        HOW_MUCH_A_STEP_DOES,
    ),
    Word(
        PREFILL,
        "Prefill._fitting_seq_len",
        ("flip comparison: missing > budget -> missing >= budget",),
        ALLOWED,
        HOW_MUCH_A_STEP_DOES,
    ),
    Word(
        PREFILL,
        "Prefill.extend",
        ("drop operand: req is state.chunked_req -> (dropped)",),
        ALLOWED,
        "The prefix that a row keeps between two chunks is written into it and told once more.",
    ),
    Word(
        PREFILL,
        "Prefill.charge",
        (
            "fix condition: others -> False",
            "off by one: seq_len + (self._expected(req, estimate) if is_last else 0) -> seq_len + "
            "(self._expected(req, estimate) if is_last else 0) + 1",
        ),
        ALLOWED,
        WHAT_IS_CHARGED,
    ),
    Word(
        PREFILL,
        "Prefill._expected",
        ("swap twin: min(estimate, req.max_new_tokens - len(req.output_ids)) -> max",),
        ALLOWED,
        WHAT_IS_CHARGED,
    ),
    Word(
        DECODE,
        "Decode.retract",
        (
            "drop not: not config.speculation -> config.speculation",
            "drop statement: self.prepare_round(req) -> (dropped)",
        ),
        ALLOWED,
        "Whether a round is prepared before a retract, a switch says; the rules allow either.",
    ),
    Word(
        DECODE,
        "Decode.make_room",
        (
            "flip comparison: len(state.live_requests()) > 1 -> len(state.live_requests()) >= 1",
            "fix condition: state.launched -> False",
            "drop operand: state.chunked_req -> (dropped)",
        ),
        ALLOWED,
        "Who is given up where nothing fits, and whether from the batch or from the queue, no rule says; "
        "that there was no room is asked.",
    ),
    Word(
        DECODE,
        "_least",
        (
            "swap twin: min(victims, key=lambda req: (req.priority, len(req.output_ids), -len(req.origin_input_ids))) -> max",
        ),
        ALLOWED,
        WHO_GOES_BACK,
    ),
    Word(
        DECODE,
        "Decode.retract_at_interval",
        ("other sign: self._steps += 1 -> self._steps -= 1",),
        EQUIVALENT,
        "It is only asked whether the interval divides it.",
    ),
    Word(
        DECODE,
        "Decode._backed_len",
        ("off by one: req.kv_allocated_len -> req.kv_allocated_len - 1",),
        EQUIVALENT,
        "A row never backs more than its committed tokens and a round.",
    ),
    Word(
        DECODE,
        "Decode._back",
        ("flip flag: True -> False",),
        EQUIVALENT,
        "A decode takes its one page as an extend does, by which it gets the same index.",
    ),
    Word(
        RESULTS,
        "Results.process",
        (
            "flip flag: True -> False",
            "flip flag: True -> False (2)",
        ),
        EQUIVALENT,
        "Both lists are of one length: an assertion against a mistake of the runner.",
    ),
    Word(
        RESULTS,
        "Results.chunk_result",
        ("fix condition: req.is_done() -> False",),
        ALLOWED,
        "The request ends a round later, and what it puts out too much is cut.",
    ),
    Word(
        RESULTS,
        "Results.late_result",
        ("fix condition: tokens -> True",),
        ALLOWED,
        "A late result of no token is told. It changes nothing.",
    ),
    Word(
        RESULTS,
        "Results._take_no_token",
        ("drop statement: self.ends.end(req) -> (dropped)",),
        ALLOWED,
        HOW_SOON,
    ),
    Word(
        ENDS,
        "Ends.end",
        ("flip flag: True -> False",),
        ALLOWED,
        "An ordinary request gives its pages back and not to the tree: others find less there, and no "
        "rule says how much they find.",
    ),
    Word(
        ENDS,
        "Ends.kept_len",
        (
            "other sign: len(req.origin_input_ids) + len(req.output_ids) -> len(req.origin_input_ids) - len(req.output_ids)",
        ),
        ALLOWED,
        ROOM_OF_A_PAGE,
    ),
    Word(
        ENDS,
        "Ends.abort",
        ("drop operand: req.to_finish -> (dropped)",),
        ALLOWED,
        "Which of two reasons a request is told that is aborted twice, no rule says.",
    ),
    Word(
        ENDS,
        "Ends.retract",
        (
            "off by one: min(computed_len(state, req), len(req.origin_input_ids) + len(req.output_ids) - 1) "
            "-> min(computed_len(state, req), len(req.origin_input_ids) + len(req.output_ids) - 1) + 1",
            "off by one: min(computed_len(state, req), len(req.origin_input_ids) + len(req.output_ids) - 1) "
            "-> min(computed_len(state, req), len(req.origin_input_ids) + len(req.output_ids) - 1) - 1",
            "swap twin: min(computed_len(state, req), len(req.origin_input_ids) + len(req.output_ids) - 1) -> max",
            "off by one: computed_len(state, req) -> computed_len(state, req) + 1",
            "other sign: len(req.origin_input_ids) + len(req.output_ids) -> len(req.origin_input_ids) - len(req.output_ids)",
            "other sign: len(req.origin_input_ids) + len(req.output_ids) - 1 -> len(req.origin_input_ids) + "
            "len(req.output_ids) + 1",
        ),
        ALLOWED,
        ROOM_OF_A_PAGE,
    ),
    Word(
        SCHEDULER,
        "Scheduler._limit_output",
        (
            "other sign: self.config.max_total_len - self.config.overshoot - len(req.origin_input_ids) -> "
            "self.config.max_total_len - self.config.overshoot + len(req.origin_input_ids)",
            "swap twin: min(req.max_new_tokens, room) -> max",
            "off by one: req.max_new_tokens -> req.max_new_tokens + 1",
        ),
        MISSED,
        LONGER_THAN_ASKED,
    ),
    Word(
        SCHEDULER,
        "Scheduler.retract",
        (
            "drop operand: if req.rid == rid -> (dropped)",
            "flip comparison: req.rid == rid -> req.rid != rid",
            "drop operand: not req.output_ids -> (dropped)",
            "drop not: not req.output_ids -> req.output_ids",
        ),
        ALLOWED,
        WHO_GOES_BACK,
    ),
    Word(
        SCHEDULER,
        "Scheduler.check",
        ("flip comparison: self.config.pool_pages <= FREE_LIST_LIMIT -> self.config.pool_pages < FREE_LIST_LIMIT",),
        ALLOWED,
        "A check of a pool of exactly so many pages does not list the free ones.",
    ),
)
