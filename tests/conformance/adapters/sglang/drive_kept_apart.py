"""Prompts whose first page has the same tokens, and which the tree keeps apart; runs in SGLang's environment.

With EAGLE its keys are pairs of tokens, so the token behind a page counts. A namespace (`extra_key`, and from 0.5.20 on
`cache_salt`) is part of each key.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from captured import captured

from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.settings import Settings
from kvproof.conformance.replay.replay import replay

FIRST, SECOND = [20, 21, 22, 23, 30, 31], [20, 21, 22, 23, 40, 41]
NAMESPACES = ("extra_key", "cache_salt")


def runs(folder: str) -> dict[str, dict[str, Any]]:
    """Of each way of keeping them apart that the release has: the verdict, and what the trace tells of prefixes and pages."""
    return {
        "pairs": _one_behind_the_other(Path(folder) / "pairs.jsonl", FIRST, SECOND, drafts=2),
        "same pairs": _one_behind_the_other(Path(folder) / "same_pairs.jsonl", FIRST, FIRST, drafts=2),
        **{
            name: _one_behind_the_other(Path(folder) / f"{name}.jsonl", FIRST, FIRST, namespace=name)
            for name in NAMESPACES
        },
    }


def _one_behind_the_other(
    path: Path, first: list[int], second: list[int], *, drafts: int = 0, namespace: str | None = None
) -> dict[str, Any]:
    settings = Settings(page_size=4, pool_tokens=128, context_length=36, overlap=drafts > 0, drafts=drafts)
    with captured(Headless(settings), path, own_idle_check=True) as headless:
        for name, prompt in (("first", first), ("second", second)):
            headless.send_tokens(name, prompt, 3)
            if namespace is not None and hasattr(headless._inbox[-1], namespace):
                setattr(headless._inbox[-1], namespace, name)
            headless.run(12)
    told = [json.loads(line) for line in path.read_text().splitlines()]
    inserts = [event for event in told if event.get("action") == "insert"]
    result = replay(path, profile="auto")
    return {
        "verdict": result.verdict,
        "found": [one.rule for one in result.findings],
        "prefixes": [event["params"].get("prefix_id") for event in inserts],
        "pages": [event["shared"] for event in inserts],
    }
