"""Drives the same schedules bare and recorded, with other words, and with recorders that fail; runs in SGLang's environment.

What clients got and what the pools held must be the same, whatever becomes of the trace.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from itertools import count, product
from pathlib import Path
from typing import Any
from unittest import mock

from captured import Spoil, captured, outcome

from kvproof.conformance.adapters.headless_scheduler import FIRST_ORDINARY_TOKEN, VOCABULARY
from kvproof.conformance.adapters.scenario_run import NeverIdle, run_to_its_end
from kvproof.conformance.adapters.sglang.capture import Capture
from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.observe import Observer
from kvproof.conformance.adapters.sglang.record import header_of_run, recording, scenarios_here, settings_for
from kvproof.conformance.adapters.sglang.scenario import Session
from kvproof.conformance.adapters.sglang.scenarios import SCENARIOS
from kvproof.conformance.adapters.sglang.settings import Settings
from kvproof.conformance.replay.replay import CONFORMS, replay
from kvproof.conformance.traces.json_lines import TraceWriter

SETTINGS = Settings(pool_tokens=240, max_running_requests=8)
DRIVEN = ("storm", "retract", "pressure", "many-sessions", "mixed-chunk", "busy-check")
WITH_DRAFTS = tuple(f"matrix-speculation{kind}" for kind in ("", "-window", "-v1", "-v1-window"))
SEEDS = 4


def schedule(headless: Headless, seed: int) -> str:
    """Sessions and ordinary requests that come, go, are aborted and retracted as the dice say; how it ended."""
    dice = random.Random(seed)
    sessions = [Session(headless, f"s{number}") for number in range(3)]
    try:
        for round_ in range(60):
            for session in sessions:
                if headless.request(session.turn) is not None:
                    if session.turn in headless.running() and dice.random() < 0.1:
                        session.ask_to_abort()
                elif session.turns < 6 and dice.random() < 0.5:
                    session.send(dice.randrange(1, 20), dice.randrange(1, 9))
            if dice.random() < 0.2:
                headless.send(f"plain/{round_:03}", dice.randrange(1, 30), dice.randrange(1, 12))
            with headless.force_retract() if dice.random() < 0.1 else nullcontext():
                headless.step()
        headless.drain()
        for session in sessions:
            session.close()
        headless.drain()
    except NeverIdle as error:
        return str(error)
    except Exception as error:  # the release's own; it must be the same one
        return f"{type(error).__name__}: {error}"
    return "finished"


# -- by the recorder of scenarios --


def recorded() -> int:
    """How many scenarios did the same with a recorder and without."""
    names = [*DRIVEN, *(name for name in WITH_DRAFTS if name in scenarios_here())]
    runs = list(product(names, (1, 4), (0, 1)))
    for name, page_size, seed in runs:
        bare, watched = (of_scenario(name, page_size, seed, is_recorded=is_recorded) for is_recorded in (False, True))
        assert bare == watched, f"{name}, page size {page_size}, seed {seed}:\n{bare}\n{watched}"
    return len(runs)


def of_scenario(name: str, page_size: int, seed: int, *, is_recorded: bool) -> list[Any]:
    scenario = SCENARIOS[name]
    headless = Headless(settings_for(scenario, page_size, seed, {}), checks=scenario.checks)
    with (
        tempfile.TemporaryDirectory() as folder,
        TraceWriter(f"{folder}/t", header_of_run(headless, name)) as writer,
        recording(headless, writer) if is_recorded else nullcontext(),
    ):
        reason = run_to_its_end(scenario, headless)
    return [reason, *outcome(headless)]


# -- captured as a server is --


def breaks_after(calls: int, name: str) -> Spoil:
    """The observer's method raises from its n-th call on."""
    original, called = getattr(Observer, name), count(1)

    def breaking(self: Observer, *args: Any, **kwargs: Any) -> Any:
        if next(called) > calls:
            raise RuntimeError("the recorder made a mistake")
        return original(self, *args, **kwargs)

    return lambda capture: mock.patch.object(Observer, name, breaking)


def writer_is_killed(capture: Capture) -> AbstractContextManager[Any]:
    while capture.path.stat().st_size == 0:  # until it has written the header
        time.sleep(0.01)
    os.kill(next(pid for pid, file in open_files() if file == capture.path), signal.SIGKILL)
    return nullcontext()


def open_files() -> Iterator[tuple[int, Path]]:
    """Of each process. What is closed while it is looked at is left out."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            yield int(link.parts[2]), link.readlink()


def pipe_is_slow(capture: Capture) -> AbstractContextManager[Any]:
    capture._handover._buffer_bytes = -1
    return mock.patch.object(os, "write", side_effect=BlockingIOError)


SPOILED: dict[str, Spoil] = {
    "decode breaks": breaks_after(15, "pages_of"),
    "sessions break": breaks_after(30, "session_reading"),
    "match breaks": breaks_after(5, "runs_on_slot_row"),
    "writer is killed": writer_is_killed,
    "pipe is slow": pipe_is_slow,
}


def whatever_becomes_of_the_recorder() -> list[tuple[str, str]]:
    """Of each run that was compared: what was wrong with its recorder, and how the schedule ended."""
    folder, compared = Path(tempfile.mkdtemp()), list[tuple[str, str]]()
    for overlap, page_size, seed in product((False, True), (1, 4), range(SEEDS)):
        settings = replace(SETTINGS, page_size=page_size, overlap=overlap, seed=seed)
        bare = Headless(settings)
        expected = [schedule(bare, seed), *outcome(bare)]
        spoiled = list(SPOILED)[(seed + len(compared)) % len(SPOILED)]
        for way in ("nothing", spoiled):
            path = folder / f"{len(compared)}.jsonl"
            with captured(Headless(settings), path, spoil=SPOILED.get(way)) as headless:
                seen = [schedule(headless, seed), *outcome(headless)]
            assert seen == expected, f"{settings}, {way}:\n{expected}\n{seen}"
            assert way == "nothing" or replay(path).verdict != CONFORMS, f"{way}: a spoiled trace conforms"
            compared.append((way, expected[0]))
    return compared


# -- with other words --


class Speaker(Headless):
    """Says the word that stands at the place of each word that would have been said."""

    def __init__(self, settings: Settings, words: list[int]) -> None:
        self.words, self.said = words, list[int]()
        super().__init__(settings)

    def tokens(self, count: int) -> list[int]:
        said = [self.words[token] for token in super().tokens(count)]
        self.said += said
        return said


def telling_a_word(capture: Capture) -> AbstractContextManager[Any]:
    lengths = Observer.lengths

    def telling(self: Observer, req: Any) -> Any:
        first, *rest = lengths(self, req).items()
        return dict([(first[0], first[1] + req.origin_input_ids[0]), *rest])

    return mock.patch.object(Observer, "lengths", telling)


def other_words(page_size: int) -> dict[str, Any]:
    """What the traces of one schedule have in common: as it is, with other words, and by a recorder that tells a word.

    Other words: every token is another one, one for one, so that what shared a prefix shares it still.
    """
    ordinary, reserved = range(FIRST_ORDINARY_TOKEN, VOCABULARY), list(range(FIRST_ORDINARY_TOKEN))
    others = random.Random(1).sample(ordinary, len(ordinary))
    folder, ended, said = Path(tempfile.mkdtemp()), list[str](), list[list[int]]()
    runs: dict[str, tuple[Any, Callable[[Capture], Any] | None]] = {
        "one": (ordinary, None),
        "other": (others, None),
        "told": (ordinary, telling_a_word),
    }
    for name, (words, spoil) in runs.items():
        speaker = Speaker(replace(SETTINGS, page_size=page_size), [*reserved, *words])
        with captured(speaker, folder / name, spoil=spoil):
            ended.append(schedule(speaker, 0))
        said.append(speaker.said)
    one, other, told = ((folder / name).read_bytes() for name in runs)
    return {
        "ended": ended,
        "events": one.count(b'"event"'),
        "words": len(said[0]),
        "words that stayed": sum(word == another for word, another in zip(said[0], said[1], strict=True)),
        "same trace": one == other,
        "same trace though a word is reported": one == told,
    }
