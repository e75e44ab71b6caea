"""All policies of one engine, put around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvproof.conformance.fuzz.target import Tell
from policies.admission import Admission
from policies.events import ReportedEvents
from policies.prefixes import Prefixes
from policies.request_options import RequestOptions
from policies.retracts_and_aborts import RetractsAndAborts
from policies.rows import Rows
from policies.steps import Steps

if TYPE_CHECKING:
    from kvproof.impl.config import EngineConfig
    from kvproof.impl.observe import Event
    from kvproof.impl.scheduler import Scheduler


class Policies:
    """An observer of the engine that hands each event on. Whatever is broken, is raised where it is, as PolicyBroken."""

    def __init__(self, config: EngineConfig, tell: Tell) -> None:
        self._tell = tell
        self._reported_events = ReportedEvents(config)

    def on_event(self, event: Event) -> None:
        self._tell(event)
        self._reported_events.see(event)

    def watch(self, scheduler: Scheduler) -> None:
        Rows(scheduler.state)
        Prefixes(scheduler.state)
        Admission(scheduler)
        RequestOptions(scheduler)
        RetractsAndAborts(scheduler, Steps(scheduler))
        self._reported_events.watch(scheduler)
