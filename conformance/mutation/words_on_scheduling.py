"""Mutants of the scheduler, its rooms and their state that were read by hand."""

from __future__ import annotations

from kvproof.conformance.mutation.word import ALLOWED, EQUIVALENT, MISSED, Word

SCHEDULER = "impl/scheduler.py"
PREFILL = "impl/prefill.py"
DECODE = "impl/decode.py"
RESULTS = "impl/results.py"
ENDS = "impl/ends.py"
STATE = "impl/state.py"
REQUEST = "impl/request.py"

WHO_IS_EVICTED = "Which unlocked leaf is evicted first, and that no more are than were asked for, no rule says."
TELLS_NOTHING = "An eviction of no page is carried out and told. It changes nothing."
WHO_GOES_BACK = "Who is sent back to the queue, and after which result, no rule says."
HOW_MUCH_A_STEP_DOES = "How much is prefilled in one step, and how many run at once, no rule says."
WHAT_IS_CHARGED = (
    "An admission is charged less than its next round, or more: others are retracted earlier, or it "
    "waits longer. Asked for is only "
    "that all come to an end, and they do."
)
HOW_SOON = "The request ends with its next result, not at once: how soon an abort is carried out, no rule says."
ROOM_OF_A_PAGE = (
    "One page more of the window is kept than the next token looks back to, so that a token further "
    "is still right; and one that "
    "gives back less gives it back later."
)
LONGER_THAN_ASKED = "What was asked for is compared with what the implementation itself limited it to."

ON_SCHEDULING: tuple[Word, ...] = (
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
        STATE,
        "EngineState.obtainable_pages",
        (
            "off by one: min(pages, self.window_pool.available_window_pages + "
            "self.prefixes.window_evictable_size // page_size) "
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
