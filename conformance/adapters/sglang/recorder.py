"""Records what SGLang's scheduler does with KV pages as events of `docs/events.md`, by wrapping the real methods.

`Recorder._watched` is the table of what is wrapped and which handler writes about it; handlers live by what they see: what
arrives (`arrivals.py`), what becomes of a turn (`turns.py`), what every step does (`steps.py`), which pages went back
(`page_moves.py`). A handler calls the real method exactly once and changes nothing.

What was seen is put down as plain values (`event_records.py`) and goes to `put`. Nothing is formatted or written here.

A recorder shows what happened, also where that was wrong; it decides nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from kvproof.conformance.adapters.live.idle_passes import idle_params
from kvproof.conformance.adapters.live.page_ids import PageIds
from kvproof.conformance.adapters.method_hooks import MethodHooks, OnError, importers_of, of_a_method
from kvproof.conformance.adapters.scheduler_actions import SchedulerActions
from kvproof.conformance.adapters.sglang.arrivals import Arrivals
from kvproof.conformance.adapters.sglang.event_records import EventRecords, Put
from kvproof.conformance.adapters.sglang.header import speculation_of
from kvproof.conformance.adapters.sglang.observe import Observer
from kvproof.conformance.adapters.sglang.page_moves import EVICTS, REMAPS, TAKES_BACK, PageMoves
from kvproof.conformance.adapters.sglang.releases import Release, layers_of, read_terms
from kvproof.conformance.adapters.sglang.speculation_v1 import Verifying
from kvproof.conformance.adapters.sglang.speculation_v2 import Rounds
from kvproof.conformance.adapters.sglang.steps import Steps
from kvproof.conformance.adapters.sglang.turns import Turns


class Recorder:
    """Records one scheduler. `put` takes what was seen; `step` tells the number of the scheduler's step, for people.

    Without `on_error` an error of the recorder is raised where it happens. With it the first one is handed over, nothing is
    recorded from then on, and the scheduler never notices.
    """

    def __init__(
        self,
        release: Release,
        scheduler: Any,
        put: Put,
        *,
        step: Callable[[], int],
        on_error: OnError | None = None,
    ) -> None:
        self.release = release
        self.hooks = MethodHooks(on_error)
        self._scheduler = scheduler
        speculation = speculation_of(scheduler)
        self._rounds = Rounds(release) if speculation == 2 else None
        self._observe = Observer(release, scheduler, self._rounds)
        self.events = EventRecords(self._observe, put, step)
        self._actions = SchedulerActions(self.events.event)
        self._moves = PageMoves(scheduler, self._observe, self._actions)
        self._arrivals = Arrivals(release, self._observe, self.events, self._actions)
        self.steps = Steps(release, self._observe, self.events, self._rounds)
        self._turns = Turns(release, self._observe, self.events, self._actions, self._arrivals, self.steps)
        verifying = Verifying(release, self._observe, self.events, self._actions)
        self._verifying = verifying if speculation == 1 else None

    @property
    def stray_frees(self) -> int:
        """Pages freed outside every known action: the trace names them as dropped."""
        self.page_ids.settle(wait=True)
        return len(self._moves.strays.free) + len(self._moves.strays.window_free)

    @property
    def page_ids(self) -> PageIds:
        """Where ids of pages come from; lists of what was put down fill when it settles."""
        return self._observe.page_ids

    def start(self) -> None:
        for owner, name, handler in self._watched():
            self.hooks.around(owner, name, handler)
        # What every step calls has listeners, which cost less.
        batch = importlib.import_module("sglang.srt.managers.schedule_batch").ScheduleBatch
        if self._rounds is not None:
            self.hooks.between(batch, "prepare_for_decode", self._rounds.come, self.steps.prepared_for_round)
        elif self._verifying is None:
            self.hooks.after(batch, "prepare_for_decode", self.steps.prepared_for_decode)
        self.hooks.between(
            type(self._scheduler), "process_batch_result", self.steps.results_come, self.steps.results_came
        )
        self._renew_bound_methods()

    def stop(self) -> None:
        self.hooks.take_away()
        self._renew_bound_methods()

    def _renew_bound_methods(self) -> None:
        """Who keeps bound methods gets the watched ones, or the originals: the dispatcher, and the unified tree of 0.5.11."""
        self._scheduler.init_request_dispatcher()
        tree, _ = layers_of(self._scheduler.tree_cache)
        self._moves.renew_bound_methods(getattr(tree, "components", {}).values())

    def _watched(self) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
        """The table of watched methods: (class or module, name, handler)."""
        release, scheduler = self.release, self._scheduler
        arrivals, turns, moves = self._arrivals, self._turns, self._moves
        schedule_batch = importlib.import_module("sglang.srt.managers.schedule_batch")
        batch, request, the_scheduler = schedule_batch.ScheduleBatch, schedule_batch.Req, type(scheduler)
        common = importlib.import_module("sglang.srt.mem_cache.common")
        controller, tree = release.load("session_controller"), type(layers_of(scheduler.tree_cache)[0])
        for allocator in moves.allocators():
            for name in TAKES_BACK:
                if hasattr(allocator, name):
                    yield allocator, name, partial(moves.free, name)
        if self._observe.has_window and hasattr(scheduler.token_to_kv_pool_allocator, REMAPS):
            yield type(scheduler.token_to_kv_pool_allocator), REMAPS, moves.remap
        for name in EVICTS:
            if hasattr(tree, name):
                yield tree, name, self._actions.evict
        yield tree, "insert", self._actions.insert
        yield controller, "open", arrivals.open
        yield controller, "_close", arrivals.close
        yield release.load("session"), "create_req", arrivals.create
        yield the_scheduler, "handle_generate_request", arrivals.generate
        yield the_scheduler, "abort_request", arrivals.abort
        yield type(scheduler.tree_cache), "release_session", arrivals.release
        yield request, "init_next_round_input", turns.match
        yield batch, "prepare_for_extend", turns.extend
        yield batch, "release_req", turns.retract
        functions: dict[str, Callable[..., Any]] = {"release_kv_cache": turns.release}
        if release.keeps_unfinished is None:
            yield type(scheduler.tree_cache), "cache_unfinished_req", of_a_method(turns.keep)
        else:
            functions[release.keeps_unfinished] = turns.keep
        if self._observe.has_window:
            if release.evicts_window is None:
                yield batch, "_evict_swa", of_a_method(turns.evict_window)
            else:
                functions[release.evicts_window] = turns.evict_window
        if self._verifying is not None:
            drafts = importlib.import_module("sglang.srt.speculative.eagle_info").EagleVerifyInput
            yield drafts, "prepare_for_verify", self._verifying.prepare
            yield type(scheduler.model_worker), "verify", self._verifying.verify
        for name, handler in functions.items():
            for module in importers_of("sglang", common, name):
                yield module, name, handler

    def idle(self, passes: int) -> None:
        """So many passes of the event loop in a row found nothing to run."""
        self.events.event("check", params=idle_params(self._scheduler, passes))

    def check(self, *, busy: bool, passed: bool, free_list: bool = True) -> None:
        """The terms of the release's own memory check as they are now; `passed`: what its check said."""
        page_size = self._scheduler.page_size
        try:
            terms = read_terms(self.release, self._scheduler, busy=busy)
        except AssertionError:  # the release's own counting refuses; `own_check_ok` says so
            terms = {}
        in_pages = {
            pool: {name: tokens // page_size for name, tokens in vars(of_pool).items()}
            for pool, of_pool in terms.items()
        }
        params = {"busy": busy, "own_check_ok": passed}
        self.events.event(
            "check",
            params=params,
            terms=in_pages.get("full"),
            window_terms=in_pages.get("window"),
            free_list=self._observe.free_pages() if free_list else None,
            window_free_list=self._observe.free_window_pages() if free_list else None,
        )
