"""Schedules of the fuzzer, played on the target `sglang`; runs in SGLang's environment."""

from __future__ import annotations

from typing import Any

from kvproof.conformance.fuzz.play import play
from kvproof.conformance.fuzz.schedule import Act, Schedule
from kvproof.conformance.fuzz.sglang import SGLang

ACTS = (
    Act(do="open"),
    Act(do="turn", new_tokens=9, max_new_tokens=3),
    Act(do="send", new_tokens=20, max_new_tokens=12, shared=8),
    Act(do="step", times=4),
    Act(do="retract"),
    Act(do="turn", new_tokens=5, max_new_tokens=2),
    Act(do="step", times=9),
    Act(do="abort"),
    Act(do="send", new_tokens=20, max_new_tokens=2, shared=8),
)
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"page_size": 4, "overlap": True},
    {"page_size": 2, "window": "page", "pool": "tight"},
    {"page_size": 16, "chunk": "page", "radix_cache": False},
    {"drafts": 3, "rows": 4},
)


def played(target: SGLang, settings: dict[str, Any]) -> Any:
    return play(Schedule(target=target.name, profile=target.profile, settings=settings, acts=ACTS), target)


def told_again() -> list[tuple[int, bool]]:
    """Of each of the settings: how many events its schedule has, and whether it has the same after others, in another order."""
    target = SGLang()
    first = [[event.model_dump_json() for event in played(target, settings).events] for settings in SETTINGS]
    again = [[event.model_dump_json() for event in played(target, settings).events] for settings in SETTINGS[::-1]]
    return [(len(events), events == other) for events, other in zip(first, again[::-1], strict=True)]


def holders() -> list[str]:
    """What is found where a release says the truth of its sessions, and where it says that one holds KV."""
    target = SGLang()
    right = trouble_of(target)
    from sglang.srt.session.streaming_session import StreamingSession

    StreamingSession.any_holding_kv = lambda self: True
    return [right, trouble_of(target)]


def trouble_of(target: SGLang) -> str:
    """On a chunk cache too, where newer releases have the sessions in a layer around it."""
    found = (played(target, settings).trouble for settings in ({}, {"radix_cache": False}))
    return next((trouble.sentence for trouble in found if trouble is not None), "nothing")
