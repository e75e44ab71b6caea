"""A soak: random load on random configurations, everything counted after every step, everything returned in the end.

    PYTHONPATH=tools:benchmarks python -m soak.engine_soak --steps 100000 --seed 0 [--pools device] [--device cuda]

Each episode draws a configuration (page size, pools, window, rows, cache, chunks, overlap, speculation, forced retracts) and
plays sessions, ordinary requests, aborts, retracts and closes on it, between steps and between the halves of a step. After
every step the census counts the owners of pages, rows and locks, and the memory check must add up. At the end of an episode
all requests end, all sessions close, and every page and row must be back. The first violation ends the soak with the seed
of its episode; exit code 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from kvproof.impl.census import CensusViolation
from kvproof.impl.config import EngineConfig, Pools
from kvproof.impl.observe import Observer
from kvproof.impl.runner import VOCAB_SIZE
from kvproof.impl.scheduler import Scheduler
from kvproof.impl.simulated_users import Stuck

EPISODE_ACTS = 250
DRAIN_STEPS = 5_000
"""No load of one episode takes nearly as many steps to its end."""


def random_config(chance: random.Random) -> EngineConfig:
    """A configuration that can work; pools and rows are too small for the load, more often than not."""
    page_size = chance.choice((1, 1, 2, 4, 8, 16, 64))
    speculation, overlap = chance.choice(((0, False), (0, True), (0, True), (1, False), (2, True)))
    chunk = chance.choice((None, page_size, 3 * page_size + 1))
    drafts = chance.randint(1, 4)
    settings: dict[str, Any] = {
        "page_size": page_size,
        "pool_pages": chance.randint(4, 60) + -(-12 // page_size),
        "rows": chance.randint(1, 9),
        "row_width": chance.randint(6 * page_size + 12, 16 * page_size + 60),
        "row_order": chance.choice(("fifo", "lifo")),
        "radix_cache": chance.random() < 0.7,
        "chunked_prefill_size": chunk,
        "mixed_chunk": chunk is not None and not speculation and chance.random() < 0.5,
        "max_prefill_tokens": chance.choice((page_size + 2, 4096)),
        "max_running_requests": chance.choice((None, None, 2)),
        "new_token_estimate": chance.choice((0, 0, 6)),
        "overlap": overlap,
        "speculation": speculation,
        "drafts": drafts,
        "draft_accuracy": chance.choice((0.0, 0.5, 0.9, 1.0)),
        "retract_after_prepare": chance.random() < 0.3,
        "retract_interval": chance.choice((None, None, 2, 5)),
        "forward": "none",
        "seed": chance.randrange(1000),
    }
    if chance.random() < 0.5:
        return EngineConfig(**settings)
    config = EngineConfig(**settings, window=chance.choice((1, page_size, 2 * page_size + 1, 5 * page_size)))
    tight = config.least_window_pages + chance.choice((0, 0, 1, 4))
    return dataclasses.replace(config, window_pages=chance.choice((tight, config.window_pages)))


class Episode:
    """One scheduler under random load."""

    def __init__(self, config: EngineConfig, chance: random.Random, observer: Observer | None = None) -> None:
        self.scheduler = Scheduler(config, observer)
        self.steps = 0
        self.acts: Counter[str] = Counter()
        self._chance = chance
        self._sessions: list[str] = []
        self._sent: list[str] = []
        self._named = 0
        self._prompts = [self._tokens(3 * config.page_size + 2) for _ in range(3)]
        """What prompts begin with, so that the tree has something to share."""

    def run(self, most_steps: int) -> None:
        acts: list[tuple[float, Callable[[], None]]] = [
            (0.30, self._send_turn),
            (0.15, self._send),
            (0.10, self._abort),
            (0.07, self._retract),
            (0.06, self._open),
            (0.03, self._close),
        ]
        while sum(self.acts.values()) < EPISODE_ACTS and self.steps < most_steps:
            [act] = self._chance.choices([act for _, act in acts], [weight for weight, _ in acts])
            act()
            for _ in range(self._chance.randint(0, 3)):
                self._step(between=act if self._chance.random() < 0.1 else None)
        self._drain()

    def _step(self, between: Callable[[], None] | None = None) -> None:
        """One step; `between` happens between its halves."""
        self.scheduler.launch_step()
        if between is not None:
            between()
        self.scheduler.take_results()
        self.scheduler.census.take()
        self.steps += 1

    def _drain(self) -> None:
        limit = self.steps + DRAIN_STEPS
        while not self.scheduler.is_idle:
            if self.steps > limit:
                raise Stuck(f"requests are not over after {DRAIN_STEPS} steps without new ones")
            self._step()
        for session_id in self._sessions:
            self.scheduler.close_session(session_id)
        self.scheduler.census.take()
        self.scheduler.census.settle()
        self._require_all_back()

    def _require_all_back(self) -> None:
        state = self.scheduler.state
        terms = state.memory_terms()
        if terms["available"] + terms["evictable"] != terms["total"]:
            raise CensusViolation(f"at the end of the episode pages are missing: {terms}")
        window_terms = state.window_terms()
        if window_terms and window_terms["available"] + window_terms["evictable"] != window_terms["total"]:
            raise CensusViolation(f"at the end of the episode window pages are missing: {window_terms}")
        if state.rows.available_rows != state.config.rows:
            raise CensusViolation(
                f"at the end of the episode {state.rows.available_rows} of {state.config.rows} rows are free"
            )
        lost = [rid for rid in self._sent if rid not in state.outcomes]
        if lost:
            raise CensusViolation(f"at the end of the episode {', '.join(lost)} never ended")

    # -- what users do --

    def _open(self) -> None:
        if len(self._sessions) >= self.scheduler.config.rows:
            return  # idle sessions hold rows: with more of them nobody else gets anywhere
        self._sessions.append(self._name("s"))
        self.scheduler.open_session(self._sessions[-1])
        self.acts["open"] += 1

    def _send_turn(self) -> None:
        if not self._sessions:
            return self._open()
        session_id = self._chance.choice(self._sessions)
        if session_id not in self.scheduler.state.controller.sessions:
            self._sessions.remove(session_id)  # a deferred close was carried out
            return None
        self._sent.append(self._name("turn"))
        logprob, priority = self._chance.random() < 0.2, self._chance.randint(0, 2)
        self.scheduler.submit_turn(
            session_id, self._sent[-1], self._prompt(), self._output(), logprob=logprob, priority=priority
        )
        self.acts["turn"] += 1
        return None

    def _send(self) -> None:
        self._sent.append(self._name("plain"))
        self.scheduler.submit(self._sent[-1], self._prompt(), self._output(), priority=self._chance.randint(0, 2))
        self.acts["ordinary request"] += 1

    def _abort(self) -> None:
        state = self.scheduler.state
        known = [*(req.rid for req in state.waiting), *(req.rid for req in state.live_requests()), *self._sent[-1:]]
        if known:
            self.scheduler.abort(self._chance.choice(known))
            self.acts["abort"] += 1

    def _retract(self) -> None:
        if self.scheduler.state.running:
            self.scheduler.retract(self._chance.choice(self.scheduler.state.running).rid)
            self.acts["retract"] += 1

    def _close(self) -> None:
        if self._sessions:
            session_id = self._sessions.pop(self._chance.randrange(len(self._sessions)))
            if session_id in self.scheduler.state.controller.sessions:
                self.scheduler.close_session(session_id)
                self.acts["close"] += 1

    def _prompt(self) -> list[int]:
        page_size, config = self.scheduler.config.page_size, self.scheduler.config
        new = self._chance.choice((1, 3, page_size + 1, 2 * page_size, 5 * page_size + 2, config.row_width))
        shared = self._chance.choice((*self._prompts, [], []))
        return [*shared[: self._chance.randint(0, len(shared))], *self._tokens(new)]

    def _output(self) -> int:
        return self._chance.choice((1, 2, 3, 5, 9, 2 * self.scheduler.config.page_size + 1))

    def _tokens(self, count: int) -> list[int]:
        return self._chance.choices(range(1, VOCAB_SIZE), k=count)

    def _name(self, prefix: str) -> str:
        self._named += 1
        return f"{prefix}-{self._named}"


def soak(
    steps: int, seed: int, tell: Callable[[str], None] = print, pools: Pools | None = None, device: str = "cpu"
) -> int:
    """Play episodes until so many steps are done. Exit code: 0, or 1 at the first violation."""
    done, episode_number, acts, ends = 0, 0, Counter[str](), Counter[str]()
    started = time.monotonic()
    while done < steps:
        chance = random.Random(f"{seed}/{episode_number}")
        config = dataclasses.replace(random_config(chance), pools=pools, device=device)
        episode = Episode(config, chance)
        try:
            episode.run(steps - done)
        except Exception as error:
            tell(f"VIOLATION in episode {episode_number} of seed {seed}: {type(error).__name__}: {error}")
            tell(f"  {config}")
            return 1
        done += episode.steps
        episode_number += 1
        acts += episode.acts
        ends.update(outcome.reason or "finished" for outcome in episode.scheduler.outcomes.values())
    tell(f"{done:,} steps in {episode_number:,} episodes, {time.monotonic() - started:,.0f} s: no violation")
    tell("  asked for: " + ", ".join(f"{count:,} {name}" for name, count in acts.most_common()))
    tell("  ended: " + ", ".join(f"{count:,} {reason}" for reason, count in _by_kind(ends)))
    return 0


def _by_kind(ends: Counter[str]) -> list[tuple[str, int]]:
    kinds: Counter[str] = Counter()
    for reason, count in ends.items():
        kinds["refused by a busy session" if reason.startswith("session ") else reason] += count
    return kinds.most_common()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pools", choices=("host", "device"), help="where page table and free lists are")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda where there is one")
    options = parser.parse_args()
    torch.set_num_threads(1)  # the tensors are tiny: threads would only wait for each other
    sys.exit(soak(options.steps, options.seed, pools=options.pools, device=options.device))


if __name__ == "__main__":
    main()
