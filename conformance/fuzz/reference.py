"""The reference implementation as a target: mostly without a model; users may come between the halves of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from kvproof.conformance.adapters.reference import header_of, require_faults, require_torch
from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz.schedule import Schedule, Setting
from kvproof.conformance.fuzz.seeds import seeds
from kvproof.conformance.fuzz.settings_words import AMPLE, CHUNKS, POOLS, TIGHT, WINDOWS, WordedSettings
from kvproof.conformance.fuzz.target import Tell
from kvproof.impl.config import ConfigError, EngineConfig
from kvproof.impl.runner import VOCAB_SIZE

if TYPE_CHECKING:
    from kvproof.impl.request import Request
    from kvproof.impl.scheduler import Scheduler
    from kvproof.impl.state import EngineState

ENGINE_SETTINGS = frozenset(field.name for field in fields(EngineConfig))
LARGEST_PAGE_OF_A_FORWARD = 16
"""Inputs of pages that are larger are long, and to compute them takes longer than all else."""


class Reference(WordedSettings):
    name = "reference"
    acts: Sequence[str] = ("open", "turn", "send", "step", "launch", "abort", "retract", "close")
    settings: Mapping[str, Sequence[Setting]] = {
        "page_size": (1, 2, 4, 16, 64, 256),
        "pool": POOLS,
        "rows": (4, 8, 2, 1),
        "chunk": CHUNKS,
        "overlap": (False, True),
        "speculation": (0, 1, 2),
        "drafts": (1, 2, 3, 4),
        "draft_accuracy": (1.0, 0.5, 0.0),
        "window": WINDOWS,
        "window_pool": (AMPLE, TIGHT),
        "radix_cache": (True, False),
        "mixed_chunk": (False, True),
        "max_running_requests": (None, 2),
        "max_prefill": (AMPLE, TIGHT),
        "new_token_estimate": (0, 6),
        "retract_after_prepare": (False, True),
        "retract_interval": (None, 5, 2),
        "row_order": ("fifo", "lifo"),
        "forward": ("none", *("none",) * 7, "transformer"),
    }

    def __init__(self) -> None:
        require_torch()
        import torch

        from kvproof.impl.census import CensusViolation

        torch.set_num_threads(1)  # the tensors are tiny: threads would only wait for each other
        self.own_errors: tuple[type[Exception], ...] = (
            CensusViolation,
            WrongOutput,
            GivenUpInVain,
            KeptForNobody,
        )
        self.seeds: Sequence[Schedule] = seeds()

    def start(
        self, settings: Mapping[str, Setting], faults: Sequence[str], tell: Tell, *, own_checks: bool = True
    ) -> ReferenceRun:
        require_faults(faults)
        try:
            config = self.config(settings, faults)
            return ReferenceRun(config, tell, own_checks, self.scheduler(config, tell, own_checks))
        except ConfigError as error:
            raise UserError(f"settings of the reference: {error}") from error

    def scheduler(self, config: EngineConfig, tell: Tell, own_checks: bool) -> Scheduler:
        """The scheduler under test, with an observer that passes each event to `tell`."""
        from kvproof.impl.scheduler import Scheduler

        return Scheduler(config, Telling(tell))

    def config(self, settings: Mapping[str, Setting], faults: Sequence[str] = ()) -> EngineConfig:
        """The engine's own settings. What cannot go together is put right: speculation decides about overlap."""
        chosen: dict[str, Any] = {name: self._value(settings, name) for name in self.settings}
        page_size, row_width = self.page_size(settings), self.longest(settings)
        speculation = chosen["speculation"]
        chunk = self._chunk_tokens(settings, beyond=1)
        engine: dict[str, Any] = {name: value for name, value in chosen.items() if name in ENGINE_SETTINGS}
        engine |= {
            "window": self._window_tokens(settings),
            "page_size": page_size,
            "pool_pages": self._pool_pages(settings),
            "row_width": row_width,
            "chunked_prefill_size": chunk,
            "mixed_chunk": bool(chosen["mixed_chunk"]) and chunk is not None and not speculation,
            "max_prefill_tokens": 4096 if chosen["max_prefill"] == AMPLE else page_size + 2,
            "overlap": speculation == 2 or (chosen["overlap"] and speculation == 0),
            "speculation": speculation,
            "forward": chosen["forward"] if page_size <= LARGEST_PAGE_OF_A_FORWARD else "none",
            "faults": tuple(faults),
        }
        config = EngineConfig(**engine)
        if config.window and chosen["window_pool"] == TIGHT:
            config = replace(config, window_pages=config.least_window_pages)
        return config


class WrongOutput(Exception):
    """A request did not put out what its input gives without a cache (it read pages that are not its own), or not as much of
    it as was asked for."""


class GivenUpInVain(Exception):
    """A request was given up for lack of room, and there was room."""


class KeptForNobody(Exception):
    """A request that decodes holds window pages that no token of it will look back to."""


class ReferenceRun:
    """One engine. After each step its census counts every page, and its memory check is reported as an event. Where a model runs,
    every output is computed anew in the end."""

    def __init__(self, config: EngineConfig, tell: Tell, own_checks: bool, scheduler: Scheduler) -> None:
        self.header = header_of(config)
        self._scheduler = scheduler
        self._launched = False
        self._own_checks = own_checks
        self._requests = Requests(self._scheduler)

    def open(self, session: str) -> None:
        self._scheduler.open_session(session)

    def turn(
        self,
        session: str,
        turn: str,
        new_tokens: int,
        max_new_tokens: int,
        *,
        shared: int,
        logprob: bool,
        priority: int,
    ) -> None:
        if session in self._scheduler.state.controller.sessions:  # else a close that had waited was carried out
            tokens = _tokens(turn, new_tokens, shared)
            self._scheduler.submit_turn(session, turn, tokens, max_new_tokens, logprob=logprob, priority=priority)
            self._requests.remember()

    def send(self, turn: str, new_tokens: int, max_new_tokens: int, *, shared: int, priority: int) -> None:
        self._scheduler.submit(turn, _tokens(turn, new_tokens, shared), max_new_tokens, priority=priority)
        self._requests.remember()

    def abort(self, turn: str) -> None:
        self._scheduler.abort(turn)

    def retract(self, turn: str) -> None:
        self._scheduler.retract(turn)

    def close(self, session: str) -> None:
        if session in self._scheduler.state.controller.sessions:
            self._scheduler.close_session(session)

    def launch(self) -> None:
        if not self._launched:
            self._scheduler.launch_step()
            self._launched = True
            if self._own_checks:
                self._requests.require_room_was_lacking()
                require_windows_are_given_back(self._scheduler.state)

    def step(self) -> None:
        self.launch()
        self._launched = False
        self._scheduler.take_results()
        terms = self._scheduler.check()
        if self._own_checks:
            self._scheduler.census.take(terms)

    def unfinished(self) -> list[str]:
        return [req.rid for req in self._scheduler.known_requests()]

    def not_returned(self) -> str | None:
        if self._own_checks:
            self._requests.compare_outputs()
        return not_returned(self._scheduler.state)

    def stop(self) -> None:
        self._scheduler.settle()


def not_returned(state: EngineState) -> str | None:
    """When all is over and every session closed: what did not come back, in words."""
    for pool, terms in (("pages", state.memory_terms()), ("window pages", state.window_terms())):
        if terms and terms["available"] + terms["evictable"] != terms["total"]:
            missing = terms["total"] - terms["available"] - terms["evictable"]
            return f"{missing} of {terms['total']} {pool} are missing"
    free = state.rows.available_rows
    return None if free == state.config.rows else f"{state.config.rows - free} of {state.config.rows} rows are missing"


def require_windows_are_given_back(state: EngineState) -> None:
    """Right behind a launch: E has come as far as the next token of each request that decodes lets it, one page more being kept.

    The rules say how far an eviction may go; that it comes at all, is asked for here. Raises KeptForNobody."""
    pool = state.window_pool
    if pool is None:
        return
    in_prefill = {id(chunk.req) for launched in state.launched for chunk in launched.chunks}
    for req in state.running:
        if id(req) in in_prefill:
            continue
        computed = req.kv_committed_len - req.results_due
        unseen = max(computed - pool.window - pool.page_size, 0) // pool.page_size * pool.page_size
        begin = max(req.swa_evicted_seqlen, req.cache_protected_len)
        if begin < unseen:
            raise KeptForNobody(
                f"{req.rid} holds window pages from {begin} on, and its next token looks back to nothing before {unseen}"
            )


class Requests:
    """What every request was promised: an output as long as it was asked for, which is, where a model runs, the one that a
    computation without a cache gives; and that it is not given up for lack of room while there is room."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._requests: dict[str, Request] = {}
        self._over = 0

    def remember(self) -> None:
        """The request that was just sent; one that its session refused is over."""
        self._requests |= {req.rid: req for req in self._scheduler.state.waiting}

    def compare_outputs(self) -> None:
        """Raises WrongOutput."""
        from kvproof.impl.recomputation import recomputed_output

        config = self._scheduler.config
        for rid, req in self._requests.items():
            outcome = self._scheduler.outcomes.get(rid)
            if outcome is None or not outcome.finished:
                continue
            seen, inputs = list(outcome.output_ids), req.origin_input_ids
            if len(seen) != req.max_new_tokens:
                raise WrongOutput(f"{rid} put out {len(seen)} tokens, {req.max_new_tokens} were asked for")
            if config.forward == "none":
                continue
            if (right := recomputed_output(inputs, seen, seed=config.seed, window=config.window)) != seen:
                place = next(n for n, pair in enumerate(zip(right, seen, strict=True)) if pair[0] != pair[1])
                raise WrongOutput(
                    f"output token {place} of {rid} is {seen[place]}; without a cache it is {right[place]}"
                )

    def require_room_was_lacking(self) -> None:
        """Right behind a launch, before results free anything. Whoever was given up there for want of pages must want them: less
        is free or can be evicted than it will ever need. Raises GivenUpInVain."""
        outcomes = self._scheduler.outcomes
        if len(outcomes) == self._over:
            return
        from kvproof.impl.decode import OUT_OF_MEMORY
        from kvproof.impl.scheduler import DOES_NOT_FIT

        new, self._over = islice(outcomes.items(), self._over, None), len(outcomes)
        for rid, outcome in new:
            req = self._requests.get(rid)
            if outcome.reason in (DOES_NOT_FIT, OUT_OF_MEMORY) and req is not None:
                self._require_lack(req)

    def _require_lack(self, req: Request) -> None:
        scheduler = self._scheduler
        config, rows = scheduler.config, scheduler.state.rows.available_rows
        tokens = len(req.origin_input_ids) + req.max_new_tokens + config.overshoot + scheduler.decoding.round_len
        needed = -(-tokens // config.page_size) + -(-config.window // config.page_size) + 1
        terms = filter(None, scheduler.state.all_memory_terms())
        obtainable = min(of_pool["available"] + of_pool["evictable"] for of_pool in terms)
        if rows and needed <= obtainable:
            raise GivenUpInVain(
                f"{req.rid} is given up for lack of memory: it needs {needed} pages and a row, {obtainable} pages can be had "
                f"and {rows} rows (I18)"
            )


class Telling:
    """An observer that hands each event on."""

    def __init__(self, tell: Tell) -> None:
        self.on_event = tell


def _tokens(turn: str, count: int, shared: int) -> list[int]:
    """The first `shared` are those of every other input; the rest are the turn's own. Their values decide nothing else."""
    seed = sum(map(ord, turn)) * 7919
    common = min(shared, count)
    own = (1 + (seed + 31 * place) % (VOCAB_SIZE - 1) for place in range(count - common))
    return [*(1 + 17 * place % (VOCAB_SIZE - 1) for place in range(common)), *own]
