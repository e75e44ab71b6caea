"""Drives random schedules bare, and captured as a server is: with a recorder that works, and with ones that break.

Run in the environment of SGLang. What clients got and what the pools held must be the same, whatever becomes of the trace.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from kvproof.conformance.adapters.live import live_trace
from kvproof.conformance.adapters.scenario_run import NeverIdle
from kvproof.conformance.adapters.sglang.capture import Capture
from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.observe import Observer
from kvproof.conformance.adapters.sglang.settings import Settings
from kvproof.conformance.replay.replay import CONFORMS, replay

SEEDS = 4


def schedule(headless: Headless, seed: int) -> str:
    """Sessions and ordinary requests that come, go, are aborted and retracted as the dice say."""
    dice = random.Random(seed)
    turns = dict.fromkeys((f"s{number}" for number in range(3)), 0)
    for session in turns:
        headless.open(session)
    try:
        for round_ in range(60):
            for session in turns:
                current = f"{session}/{turns[session]:02}"
                if headless.request(current) is not None:
                    if current in headless.running() and dice.random() < 0.1:
                        headless.abort(current)
                elif turns[session] < 6 and dice.random() < 0.5:
                    turns[session] += 1
                    headless.send(
                        f"{session}/{turns[session]:02}", dice.randrange(1, 20), dice.randrange(1, 9), session=session
                    )
            if dice.random() < 0.2:
                headless.send(f"plain/{round_:03}", dice.randrange(1, 30), dice.randrange(1, 12))
            with headless.force_retract() if dice.random() < 0.1 else nullcontext():
                headless.step()
        headless.drain()
        for session in turns:
            headless.close(session)
        headless.drain()
    except NeverIdle as error:
        return str(error)
    except Exception as error:  # the release's own; it must be the same one
        return f"{type(error).__name__}: {error}"
    return "finished"


def outcome(settings: Settings, seed: int, trace: Path | None, spoil: Callable[[Capture], Any] | None = None) -> Any:
    """Everything a client or the allocator could notice."""
    headless = Headless(settings.but(seed=seed))
    capture = None
    if trace is not None:
        capture = Capture(headless.scheduler, str(trace))
        capture.start()
    spoiled = spoil(capture) if spoil is not None and capture is not None else nullcontext()
    with spoiled:
        reason = schedule(headless, seed)
    if capture is not None:
        capture.end()
    outputs = [(reply.rids, reply.output_ids) for reply in headless.replies if hasattr(reply, "output_ids")]
    slots = list(headless.rows.free_slots)
    return reason, headless.steps, outputs, headless.free_pages(), slots, headless.tokens(1)


# -- ways in which a recorder can fail --


def breaks_after(calls: int, name: str) -> Callable[[Capture], Any]:
    """The observer's method raises from its n-th call on."""
    original, count = getattr(Observer, name), [0]

    def breaking(self: Observer, *args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        if count[0] > calls:
            raise RuntimeError("the recorder made a mistake")
        return original(self, *args, **kwargs)

    return lambda capture: mock.patch.object(Observer, name, breaking)


def writer_is_killed(capture: Capture) -> Any:
    while capture.path.stat().st_size == 0:  # until it has written the header
        time.sleep(0.01)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and capture.path in _open_files(entry):
            os.kill(int(entry.name), signal.SIGKILL)
            return nullcontext()
    raise AssertionError("no process writes the trace")


def _open_files(process: Path) -> list[Path]:
    """Of one entry of /proc. What it closes while it is looked at is left out."""
    files = []
    with suppress(OSError):
        for link in (process / "fd").iterdir():
            with suppress(OSError):
                files.append(link.readlink())
    return files


def pipe_is_slow(capture: Capture) -> Any:
    capture._handover._buffer_bytes = -1
    return mock.patch.object(os, "write", side_effect=BlockingIOError)


SPOILED: dict[str, Callable[[Capture], Any]] = {
    "decode breaks": breaks_after(15, "pages_of"),
    "sessions break": breaks_after(30, "session_reading"),
    "match breaks": breaks_after(5, "runs_on_slot_row"),
    "writer is killed": writer_is_killed,
    "pipe is slow": pipe_is_slow,
}


def main() -> None:
    logging.getLogger("kvproof").setLevel(logging.CRITICAL)
    folder, count = Path(tempfile.mkdtemp()), 0
    for overlap in (False, True):
        for page_size in (1, 4):
            settings = Settings(page_size=page_size, pool_tokens=240, max_running_requests=8, overlap=overlap)
            for seed in range(SEEDS):
                bare = outcome(settings, seed, None)
                assert bare[2], "no output: nothing was compared"
                spoil = [None, list(SPOILED.items())[(seed + count) % len(SPOILED)]]
                for way in spoil:
                    count += 1
                    path = folder / f"{count}.jsonl"
                    what = f"overlap {overlap}, page size {page_size}, seed {seed}, {way[0] if way else 'captured'}"
                    captured = outcome(settings, seed, path, way[1] if way else None)
                    assert captured == bare, f"{what}:\n{bare}\n{captured}"
                    while live_trace.is_being_written(path):
                        time.sleep(0.01)
                    verdict = replay(path).verdict
                    assert way is None or verdict != CONFORMS, f"{what}: a spoiled trace conforms"
                    print(f"{what}: {bare[0]}, {len(bare[2])} outputs, {verdict}")
    print("same")


if __name__ == "__main__":
    main()
