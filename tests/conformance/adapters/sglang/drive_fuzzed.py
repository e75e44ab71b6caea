"""Plays schedules one after the other, and each once more on its own: a scheduler is to begin as if it were the first.

Run in the environment of SGLang. What comes before a schedule here is in each case the whole list, in another order.
"""

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


def told(target: SGLang, settings: dict[str, Any]) -> list[str]:
    schedule = Schedule(target=target.name, profile=target.profile, settings=settings, acts=ACTS)
    return [event.model_dump_json() for event in play(schedule, target).events]


def main() -> None:
    target = SGLang()
    first = [told(target, settings) for settings in SETTINGS]
    assert all(len(events) > 20 for events in first), [len(events) for events in first]
    for number in reversed(range(len(SETTINGS))):
        again = told(target, SETTINGS[number])
        assert again == first[number], f"{SETTINGS[number]} after others:\n{again}\n{first[number]}"
    print("the same")


if __name__ == "__main__":
    main()
