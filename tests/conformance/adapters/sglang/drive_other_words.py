"""Drives the same schedule three times, captured as a server is: as it is, with other words of the same lengths, and with a
recorder that tells a word. Run in the environment of SGLang; prints what the traces have in common, as JSON.

Other words: every token is another one, one for one, so that what shared a prefix shares it still.
"""

from __future__ import annotations

import json
import logging
import random
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

from drive_captured import schedule

from kvproof.conformance.adapters.headless_scheduler import FIRST_ORDINARY_TOKEN, VOCABULARY
from kvproof.conformance.adapters.live import live_trace
from kvproof.conformance.adapters.sglang.capture import Capture
from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.observe import Observer
from kvproof.conformance.adapters.sglang.settings import Settings


class Speaker(Headless):
    """Says the word that stands at the place of each word that would have been said."""

    def __init__(self, settings: Settings, words: list[int]) -> None:
        self.words, self.said = words, list[int]()
        super().__init__(settings)

    def tokens(self, count: int) -> list[int]:
        said = [self.words[token] for token in super().tokens(count)]
        self.said += said
        return said


def captured(settings: Settings, words: list[int], trace: Path, tells: bool = False) -> tuple[str, list[int]]:
    """How the schedule ended, and what was said in it."""
    speaker = Speaker(settings, words)
    capture = Capture(speaker.scheduler, str(trace))
    with mock.patch.object(Observer, "lengths", telling_a_word) if tells else nullcontext():
        capture.start()
        ended = schedule(speaker, settings.seed)
        capture.end()
    while live_trace.is_being_written(trace):
        time.sleep(0.01)
    return ended, speaker.said


_lengths = Observer.lengths


def telling_a_word(self: Observer, req: Any) -> Any:
    first, *rest = _lengths(self, req).items()
    return dict([(first[0], first[1] + req.origin_input_ids[0]), *rest])


def main() -> None:
    logging.getLogger("kvproof").setLevel(logging.CRITICAL)
    ordinary = range(FIRST_ORDINARY_TOKEN, VOCABULARY)
    reserved = list(range(FIRST_ORDINARY_TOKEN))
    others = random.Random(1).sample(ordinary, len(ordinary))
    page_size, folder = int(sys.argv[1]), Path(tempfile.mkdtemp())
    settings = Settings(page_size=page_size, pool_tokens=240, max_running_requests=8)
    runs = {
        name: captured(settings, [*reserved, *words], folder / f"{name}.jsonl", tells=name == "told")
        for name, words in (("one", ordinary), ("other", others), ("told", ordinary))
    }
    traces = {name: (folder / f"{name}.jsonl").read_bytes() for name in runs}
    ended, said = zip(*runs.values(), strict=True)
    answer = {
        "ended": ended,
        "events": traces["one"].count(b'"event"'),
        "words": len(said[0]),
        "words that stayed": sum(one == other for one, other in zip(said[0], said[1], strict=True)),
        "same trace": traces["one"] == traces["other"],
        "same trace though a word is told": traces["one"] == traces["told"],
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
