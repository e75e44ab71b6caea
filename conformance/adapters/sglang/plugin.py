"""The entry point of SGLang's plugins (group `sglang.srt.plugins`, releases from 0.5.11).

SGLang loads it in every process of a server. It does nothing unless `KVPROOF_TRACE` names a file; then it stands around the
event loop, so recording begins where a scheduler lives and nowhere else.
"""

from __future__ import annotations

import os

EVENT_LOOP = "sglang.srt.managers.scheduler.Scheduler.run_event_loop"


def load() -> None:
    if not os.environ.get("KVPROOF_TRACE"):
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from kvproof.conformance.adapters.sglang.capture import record_event_loop

    HookRegistry.register(EVENT_LOOP, record_event_loop, HookType.AROUND)
