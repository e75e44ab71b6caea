"""A prompt whose prefix the tree still has, but not its window pages; runs in SGLang's environment.

Newer releases hand the tree such a prompt only up to where it parts from the other. And when a request ends whose copy of that
prefix has its window pages, their tree takes those.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from captured import captured

from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.settings import Settings
from kvproof.conformance.replay.replay import replay

SETTINGS = Settings(pool_tokens=128, max_running_requests=8, window=1, context_length=36)
# Both begin with the same token.
FIRST, SECOND = [20, 21, 22], [20, 31, 32]


def parts_and_goes_on(headless: Headless) -> None:
    one_behind_the_other(headless, 3)


def parts_and_ends(headless: Headless) -> None:
    one_behind_the_other(headless, 1)


def one_behind_the_other(headless: Headless, generated: int) -> None:
    for name, prompt, tokens in (("first", FIRST, 3), ("second", SECOND, generated)):
        headless.send_tokens(name, prompt, tokens)
        headless.run(12)


def ends_beside_one_that_lost_its_window(headless: Headless) -> None:
    """The first one runs, its window has gone, and its prefix is locked when the second one ends."""
    headless.send_tokens("first", FIRST, 2)
    headless.send_tokens("second", FIRST[:1], 1)
    headless.run(12)


def parts_and_ends_beside_one_that_lost_its_window(headless: Headless) -> None:
    """The tree takes a window page, and less than the row."""
    headless.send_tokens("first", FIRST, 12)
    headless.run(6)
    headless.send_tokens("second", SECOND, 1)
    headless.run(12)


DRIVES = (
    parts_and_goes_on,
    parts_and_ends,
    ends_beside_one_that_lost_its_window,
    parts_and_ends_beside_one_that_lost_its_window,
)


def runs(folder: str) -> list[dict[str, Any]]:
    """What is found in each trace where it is captured as a server is, by the release's own rules and by the model's."""
    found = []
    for drive in DRIVES:
        path = Path(folder) / f"{drive.__name__}.jsonl"
        with captured(Headless(SETTINGS), path, own_idle_check=True) as headless:
            drive(headless)
        result = replay(path, profile="auto")
        told = [json.loads(line) for line in path.read_text().splitlines()]
        found.append(
            {
                "verdict": result.verdict,
                "found": [one.rule for one in result.findings],
                "by the model": replay(path).verdict,
                "parts": [one["params"]["key_len"] for one in told if "key_len" in one.get("params", {})],
                "taken over": [one["shared"] for one in told if one.get("action") == "finish" and "shared" in one],
            }
        )
    return found
