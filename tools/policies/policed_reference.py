"""The reference implementation as a fuzzing target whose every decision is compared with its policy."""

from __future__ import annotations

from kvproof.conformance.fuzz.reference import Reference
from kvproof.conformance.fuzz.target import Tell
from kvproof.impl.config import EngineConfig
from kvproof.impl.scheduler import Scheduler
from policies.all_policies import Policies
from policies.broken import PolicyBroken


class PolicedReference(Reference):
    """Also checks what no rule asks: who is admitted first, what is evicted, and when. Raises PolicyBroken."""

    def __init__(self) -> None:
        super().__init__()
        self.own_errors = (*self.own_errors, PolicyBroken)

    def scheduler(self, config: EngineConfig, tell: Tell, own_checks: bool) -> Scheduler:
        return watched_scheduler(Scheduler, config, tell) if own_checks else super().scheduler(config, tell, own_checks)


def watched_scheduler(kind: type[Scheduler], config: EngineConfig, tell: Tell) -> Scheduler:
    """A scheduler whose every decision is compared with its policy."""
    policies = Policies(config, tell)
    scheduler = kind(config, policies)
    policies.watch(scheduler)
    return scheduler
