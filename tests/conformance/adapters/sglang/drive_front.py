"""The same schedules captured twice, read by machine code and by Python: the traces are the same. For SGLang's environment.

Requests come, go, are aborted and retracted; then six only decode, for as long as several pages. Machine code is built before.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

from drive_captured import schedule

from kvproof.conformance.adapters.live import trace as live_trace
from kvproof.conformance.adapters.sglang import capture as capture_module
from kvproof.conformance.adapters.sglang import front
from kvproof.conformance.adapters.sglang.capture import Capture
from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.settings import Settings

LONG = 90

Drive = Callable[[Headless, int], None]


def comes_and_goes(headless: Headless, seed: int) -> None:
    """It may end by an error of the release's own."""
    schedule(headless, seed)


def only_decodes(headless: Headless, seed: int) -> None:
    for place in range(6):
        session = f"s{place}" if place % 2 else None
        if session is not None:
            headless.open(session)
        headless.send(f"l{place}", 5 + 3 * place, LONG, session=session)
    headless.drain()


def captured(settings: Settings, path: Path, drive: Drive, *, by_machine_code: bool) -> bytes:
    with (
        nullcontext() if by_machine_code else mock.patch.object(capture_module, "front_of", lambda *_: None),
        Headless(settings) as headless,
    ):
        capture = Capture(headless.scheduler, str(path))
        capture.start()
        assert (capture._recorder.steps._front is not None) is by_machine_code
        drive(headless, settings.seed)
        capture.end()
    while live_trace.is_being_written(path):
        time.sleep(0.01)
    return path.read_bytes()


def main() -> None:
    logging.getLogger("kvproof").setLevel(logging.CRITICAL)
    front.build()
    folder = Path(tempfile.mkdtemp())
    for overlap in (False, True):
        for page_size, window in ((1, 0), (4, 0), (4, 8)):
            settings = Settings(
                page_size=page_size,
                pool_tokens=1200,
                max_running_requests=8,
                overlap=overlap,
                window=window,
                seed=page_size,
            )
            for drive in (comes_and_goes, only_decodes):
                what = f"{drive.__name__}, overlap {overlap}, page size {page_size}, window {window}"
                paths = [folder / f"{what}, {who}.jsonl" for who in ("machine", "python")]
                machine, python = (captured(settings, path, drive, by_machine_code=path is paths[0]) for path in paths)
                assert machine == python, f"{what}: {paths[0]} is another trace than {paths[1]}"
                print(f"{what}: {machine.count(b'decode')} decodes")
    print("same")


if __name__ == "__main__":
    main()
