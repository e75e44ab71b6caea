"""Real SGLang as a target: its own scheduler in this process, without a GPU and with made-up tokens.

A schedule gets a scheduler of its own, built for it: 20 to 50 ms (`adapters/sglang/fresh_schedulers.py`). Users come between
two passes of SGLang's event loop, which is when a server reads its sockets; so a step has no halves. A client that
disconnects is an abort.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from types import SimpleNamespace
from typing import Any

from kvproof.conformance.adapters.driven_settings import settings_of_user
from kvproof.conformance.adapters.headless_scheduler import FIRST_ORDINARY_TOKEN, VOCABULARY
from kvproof.conformance.adapters.sglang import draft_model, fresh_schedulers
from kvproof.conformance.adapters.sglang.engine import import_sglang
from kvproof.conformance.adapters.sglang.headless import Checks, Headless
from kvproof.conformance.adapters.sglang.record import header_of_run, recording
from kvproof.conformance.adapters.sglang.releases import read_terms
from kvproof.conformance.adapters.sglang.settings import Settings
from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz.schedule import Schedule, Setting
from kvproof.conformance.fuzz.seeds import seeds
from kvproof.conformance.fuzz.settings_words import AMPLE, CHUNKS, POOLS, TIGHT, WINDOWS, WordedSettings
from kvproof.conformance.fuzz.target import Tell
from kvproof.spec.profiles import profile_of

STEPS_TO_CLOSE = 50
"""When all requests are over: results in flight are dropped, and closes carried out."""


class OwnCheckFailed(Exception):
    """The release's own memory check, when idle or after a step, was not content. In a server that is its end."""


class HeldOtherwise(Exception):
    """What the release says of its sessions, whether any holds KV, is not so. On this hangs whether it checks its tree."""


class SGLang(WordedSettings):
    name = "sglang"
    profile = "auto"
    sessions_may_fill_it = True
    acts: Sequence[str] = ("open", "turn", "send", "step", "abort", "retract", "close")
    own_errors: tuple[type[Exception], ...] = (OwnCheckFailed, HeldOtherwise)
    settings: Mapping[str, Sequence[Setting]] = {
        "page_size": (1, 2, 4, 16, 64),
        "pool": POOLS,
        "rows": (8, 4, 2, 1),
        "chunk": CHUNKS,
        "overlap": (False, True),
        "drafts": (0, 1, 3),
        "window": WINDOWS,
        "window_pool": (AMPLE, TIGHT),
        "radix_cache": (True, False),
        "mixed_chunk": (False, True),
        "conservativeness": (1.0, 0.3, 0.01),
        "retract_interval": (None, 5, 2),
        "busy_check": (True, False),
    }

    def __init__(self) -> None:
        """Raises UserError where no SGLang is installed, or one that cannot be driven."""
        self.release = import_sglang()
        import torch

        torch.set_num_threads(1)  # the tensors are tiny: threads would only wait for each other
        self.seeds: Sequence[Schedule] = tuple(map(for_sglang, filter(_can_be_played, seeds())))
        self._last: SGLangRun | None = None

    def start(
        self, settings: Mapping[str, Setting], faults: Sequence[str], tell: Tell | None, *, own_checks: bool = True
    ) -> SGLangRun:
        """`tell` None: nothing is recorded or checked, which is what a benchmark compares with.

        Ends the run before this one. Raises UserError if the release does not take the settings, or faults are asked for."""
        if faults:
            raise UserError("no fault can be turned on in sglang: another release is what has them")
        chosen = {name: self._value(settings, name) for name in self.settings}
        if self._last is not None:
            self._last.stop()
        of_release = self.of_release(settings)
        busy_check = bool(chosen["busy_check"]) and tell is not None
        self._last = SGLangRun(of_release, chosen, tell, own_checks, busy_check)
        fresh_schedulers.keep_out_of_garbage_collection()
        return self._last

    def of_release(self, settings: Mapping[str, Setting]) -> Settings:
        """The scheduler's own settings. What cannot go together is put right.

        Drafts without overlap are speculation v1, which few releases have.
        """
        chosen: dict[str, Any] = {name: self._value(settings, name) for name in self.settings}
        page_size, row_width = self.page_size(settings), self.longest(settings)
        chunk = self._chunk_tokens(settings, beyond=0)
        # How far a window is evicted differs from release to release: it can be judged where a profile states it.
        profile = profile_of(f"sglang {self.release.version}")
        has_window_rule = profile is not None and "evict_window" in profile.rules
        drafts = chosen["drafts"]
        values = {
            "page_size": page_size,
            "pool_tokens": self._pool_pages(settings) * page_size,
            "max_running_requests": chosen["rows"],
            "chunked_prefill_size": chunk,
            "mixed_chunk": bool(chosen["mixed_chunk"]) and chunk is not None and not drafts,
            "overlap": bool(chosen["overlap"] or (drafts and not draft_model.has_version_1())),
            "window": self._window_tokens(settings) if has_window_rule else 0,
            "drafts": drafts,
            "disable_radix_cache": not chosen["radix_cache"],
            "swa_full_tokens_ratio": 0.8 if chosen["window_pool"] == AMPLE else 0.3,
            "schedule_conservativeness": chosen["conservativeness"],
            "context_length": row_width,
        }
        return settings_of_user(Settings, self.name, values)


class SGLangRun:
    """One scheduler. Its own memory check runs when it is idle and, if asked for, after each step; each becomes an event."""

    def __init__(
        self, settings: Settings, chosen: Mapping[str, Any], tell: Tell | None, own_checks: bool, busy_check: bool
    ) -> None:
        self._stack = ExitStack()
        try:
            checks: Checks = "every" if busy_check else "idle"
            self.headless = self._stack.enter_context(Headless(settings, checks=checks))
            self.header = header_of_run(self.headless, "fuzz")
            if tell is not None:
                self._tell = tell
                self._recorder = self._stack.enter_context(recording(self.headless, self))
                self.headless.on_check = self._on_check
        except BaseException:
            self._stack.close()
            raise
        self._own_checks = own_checks
        self._interval: int | None = chosen["retract_interval"]
        self._retract_next = False
        self._inbox: list[str] = []
        self._alarm = ""
        self._told, self._checked_at = 0, -1

    def open(self, session: str) -> None:
        self.headless.open(_named(session))

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
        self._send(turn, new_tokens, max_new_tokens, shared, session=_named(session), logprob=logprob)

    def send(self, turn: str, new_tokens: int, max_new_tokens: int, *, shared: int, priority: int) -> None:
        self._send(turn, new_tokens, max_new_tokens, shared)

    def abort(self, turn: str) -> None:
        self.headless.abort(_named(turn))

    def retract(self, turn: str) -> None:
        """By SGLang's own switch, which chooses by itself: in the next step all that decode are retracted but one."""
        self._retract_next = True

    def close(self, session: str) -> None:
        self.headless.close(_named(session))

    def launch(self) -> None:
        """A pass of the event loop is one."""

    def step(self) -> None:
        self._is_idle_after_step()

    def _is_idle_after_step(self) -> bool:
        headless = self.headless
        self._inbox.clear()
        due = self._interval is not None and headless.steps % self._interval == self._interval - 1
        with headless.force_retract() if self._retract_next or due else nullcontext():
            is_idle = not headless.step()
        self._retract_next = False
        if self._alarm and self._own_checks:
            raise OwnCheckFailed(self._alarm)
        if self._own_checks:
            self._require_holders_are_told()
        return is_idle

    def _require_holders_are_told(self) -> None:
        """Raises HeldOtherwise."""
        cache = self.headless.scheduler.tree_cache
        if not (hasattr(cache, "any_holding_kv") and hasattr(cache, "slots")):
            return  # a release that has its sessions elsewhere
        holding = list(filter(self.headless.release.holds_row, cache.slots.values()))
        if bool(cache.any_holding_kv()) != bool(holding):
            raise HeldOtherwise(f"it says that {'no ' if holding else 'a '}session holds KV, and {len(holding)} do")

    def unfinished(self) -> list[str]:
        waiting = [*self._inbox, *self.headless.waiting()]
        return [rid.rstrip(".") for rid in dict.fromkeys([*waiting, *self.headless.running()])]

    def not_returned(self) -> str | None:
        headless = self.headless
        self._interval = None
        for _ in range(STEPS_TO_CLOSE):
            if self._is_idle_after_step() and not headless.scheduler.session_controller.sessions:
                break
        if open_still := list(headless.scheduler.session_controller.sessions):
            return f"{len(open_still)} closed sessions are still there"
        for pool, terms in read_terms(headless.release, headless.scheduler, busy=False).items():
            if terms.available + terms.evictable != terms.total:
                return f"{terms.total - terms.available - terms.evictable} of {terms.total} tokens of the {pool} pool are missing"
        rows = headless.rows
        free = len(rows.free_slots)
        return None if free == rows.size else f"{rows.size - free} of {rows.size} rows are missing"

    def stop(self) -> None:
        self._stack.close()

    def _send(self, turn: str, new_tokens: int, max_new_tokens: int, shared: int, **options: Any) -> None:
        name = _named(turn)
        self._inbox.append(name)
        self.headless.send_tokens(name, _tokens(turn, new_tokens, shared), max_new_tokens, **options)

    def event(self, **fields: Any) -> None:
        """Of the recorder: it is handed on."""
        self._told += 1
        self._tell(SimpleNamespace(**fields))

    def _on_check(self, busy: bool, passed: bool) -> None:
        if passed and not busy and self._told == self._checked_at:
            return  # idle again, and nothing happened since that was reported
        self._recorder.check(busy=busy, passed=passed)
        self._checked_at = self._told
        if not passed and not self._alarm:
            self._alarm = f"{'busy' if busy else 'idle'} check: {self.headless.alarm}"


def _named(name: str) -> str:
    """SGLang aborts every id that begins with the one that is named: no id here is the beginning of another."""
    return f"{name}."


def _tokens(turn: str, count: int, shared: int) -> list[int]:
    """The first `shared` are those of every other input; of the rest the first is the turn's own."""
    ordinary = VOCABULARY - FIRST_ORDINARY_TOKEN
    number = int(turn[1:])
    common = min(shared, count)
    own = (FIRST_ORDINARY_TOKEN + (number + 31 * place) % ordinary for place in range(count - common))
    return [*(FIRST_ORDINARY_TOKEN + 17 * place % ordinary for place in range(common)), *own]


def _can_be_played(seed: Schedule) -> bool:
    """Speculation that does not overlap is not driven."""
    return seed.settings.get("speculation") != 1


def for_sglang(seed: Schedule) -> Schedule:
    """A schedule of the reference, to be played on SGLang."""
    settings = {name: value for name, value in seed.settings.items() if name in SGLang.settings}
    if seed.settings.get("speculation"):
        settings["drafts"] = seed.settings.get("drafts", 1)
    return seed.model_copy(update={"target": SGLang.name, "settings": settings})
