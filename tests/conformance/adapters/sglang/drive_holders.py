"""What is found where a release says the truth of its sessions, and where it says that one holds KV; for SGLang's environment."""

from __future__ import annotations

from drive_fuzzed import ACTS

from kvproof.conformance.fuzz.play import play
from kvproof.conformance.fuzz.schedule import Schedule
from kvproof.conformance.fuzz.sglang import SGLang


def found(target: SGLang) -> str:
    """On a chunk cache too, where newer releases have the sessions in a layer around it."""
    for settings in ({}, {"radix_cache": False}):
        schedule = Schedule(target=target.name, profile=target.profile, settings=settings, acts=ACTS)
        if (trouble := play(schedule, target).trouble) is not None:
            break
    return "nothing" if trouble is None else trouble.sentence


def main() -> None:
    target = SGLang()
    print(found(target))
    from sglang.srt.session.streaming_session import StreamingSession

    StreamingSession.any_holding_kv = lambda self: True
    print(found(target))


if __name__ == "__main__":
    main()
