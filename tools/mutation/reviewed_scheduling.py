"""Mutants of the scheduler, its parts and their state that were read by hand."""

from __future__ import annotations

from mutation.review import ALLOWED, EQUIVALENT, Review

SCHEDULER = "impl/scheduler.py"
DECODE = "impl/decode.py"
RESULTS = "impl/results.py"
REQUEST_EXIT = "impl/request_exit.py"
STATE = "impl/state.py"
REQUEST = "impl/request.py"
PREFILL = "impl/prefill.py"

ON_SCHEDULING: tuple[Review, ...] = (
    Review(
        REQUEST,
        "Request.reset_for_retract",
        ("drop statement: self.is_chunked = 0 -> (dropped)",),
        EQUIVALENT,
        "Who is retracted has output, so that the results of all its chunks are in.",
    ),
    Review(
        REQUEST,
        "Request.reset_for_retract",
        ("drop statement: self.prefix_indices = NO_INDICES -> (dropped)",),
        EQUIVALENT,
        "It is matched before it runs again, which sets them.",
    ),
    Review(
        STATE,
        "EngineState.back",
        ("other sign: start + 1 -> start - 1", "fix condition: is_decode and end == start + 1 -> False"),
        EQUIVALENT,
        "A decode takes its one page as an extend does, by which it gets the same index.",
    ),
    Review(
        DECODE,
        "Decode.make_room",
        ("drop operand: state.chunked_req -> (dropped)",),
        EQUIVALENT,
        "When nothing is in flight, whoever runs has a token to show and can be sent back. So there is one left, which runs, and "
        "none between two chunks.",
    ),
    Review(
        DECODE,
        "Decode.retract_at_interval",
        ("other sign: self._steps += 1 -> self._steps -= 1",),
        EQUIVALENT,
        "It is only asked whether the interval divides it.",
    ),
    Review(
        DECODE,
        "Decode._backed_len",
        ("off by one: req.kv_allocated_len -> req.kv_allocated_len - 1",),
        EQUIVALENT,
        "A row never backs more than its committed tokens and a round.",
    ),
    Review(
        DECODE,
        "Decode._back",
        ("flip flag: True -> False",),
        EQUIVALENT,
        "A decode takes its one page as an extend does, by which it gets the same index.",
    ),
    Review(
        RESULTS,
        "Results.process",
        (
            "flip flag: True -> False",
            "flip flag: True -> False (2)",
        ),
        EQUIVALENT,
        "Both lists are of one length: an assertion against a mistake of the runner.",
    ),
    Review(
        REQUEST_EXIT,
        "RequestExit.retract",
        ("off by one: computed_len(state, req) -> computed_len(state, req) + 1",),
        EQUIVALENT,
        "Of whoever is sent back all but the last token is computed: the other length is the smaller one, or the same.",
    ),
    Review(
        SCHEDULER,
        "Scheduler.check",
        ("flip comparison: self.config.pool_pages <= FREE_LIST_LIMIT -> self.config.pool_pages < FREE_LIST_LIMIT",),
        ALLOWED,
        "A check of a pool of exactly so many pages does not list the free ones.",
    ),
    Review(
        STATE,
        "EngineState.make_available",
        ("drop operand: self.config.radix_cache -> (dropped)",),
        EQUIVALENT,
        "Without a tree nothing can be evicted, and nobody takes more pages than are free.",
    ),
    Review(
        STATE,
        "EngineState.is_idle",
        ("drop operand: self.launched -> (dropped)",),
        ALLOWED,
        "A server whose last step in flight carries only requests that are over calls itself idle one step earlier.",
    ),
    Review(
        SCHEDULER,
        "Scheduler.__init__",
        ("fix condition: self.state.device is None -> True",),
        EQUIVALENT,
        "Only the check differs: it counts the books in place of the device's pools, which agree.",
    ),
    Review(
        PREFILL,
        "Prefill.extend",
        ("drop operand: req.lent -> (dropped)",),
        EQUIVALENT,
        "The prefix of a turn that was lent its row was read from that row: it is written back as it was.",
    ),
    Review(
        PREFILL,
        "Prefill.keep_chunk",
        (
            "drop operand: req.prefix_len < req.kv_committed_len -> (dropped)",
            "flip comparison: req.prefix_len < req.kv_committed_len -> req.prefix_len <= req.kv_committed_len",
        ),
        ALLOWED,
        "A chunk that waits for room is kept and told once more in each step: no page moves.",
    ),
)
