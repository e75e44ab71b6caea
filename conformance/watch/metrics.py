"""What a watch sees, for Prometheus. Needs the package prometheus-client, which is an extra.

Whoever scrapes gets the status that the watch told last: nothing is computed in the thread that answers.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.replay import CONFORMS, INCOMPLETE, VIOLATES
from kvproof.conformance.watch.status import WAITING, Status

INSTALL = "pip install 'kvproof[watch]'"
VERDICTS = (CONFORMS, VIOLATES, INCOMPLETE, "none")


class Metrics:
    """Serves the metrics until it is closed. Port 0: one that is free; `port` says which."""

    def __init__(self, host: str, port: int, latest: Callable[[], Status]) -> None:
        try:
            client: Any = importlib.import_module("prometheus_client")
        except ImportError as error:
            raise UserError(f"--metrics-port needs prometheus-client, which is not installed: {INSTALL}") from error
        registry = client.CollectorRegistry()
        registry.register(_Collector(latest))
        try:
            self._server, self._thread = client.start_http_server(port, host, registry)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise UserError(f"--metrics-port {port}: {host} cannot be listened on: {why}") from error
        self.port: int = self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Collector:
    def __init__(self, latest: Callable[[], Status]) -> None:
        self._latest = latest

    def describe(self) -> list[Any]:
        """Nothing is asked before there is something to tell."""
        return []

    def collect(self) -> Iterator[Any]:
        core: Any = importlib.import_module("prometheus_client.core")
        status = self._latest()
        yield core.CounterMetricFamily(
            "kvproof_violations", "Events that the rules do not allow.", value=status.violations
        )
        events = core.CounterMetricFamily("kvproof_events", "Events that were judged, by action.", labels=["action"])
        for action, times in sorted(status.actions.items()):
            events.add_metric([action], times)
        yield events
        yield core.CounterMetricFamily(
            "kvproof_unjudged_events", "Events after a violation that ended the following.", value=status.unjudged
        )
        deviations = core.CounterMetricFamily(
            "kvproof_known_deviations", "Events that followed a known deviation of the release.", labels=["fault"]
        )
        for fault, times in sorted(status.followed.items()):
            deviations.add_metric([fault], times)
        yield deviations
        pages = core.GaugeMetricFamily("kvproof_pages", "Pages by owner.", labels=["pool", "owner"])
        for pool, owners in status.pools.items():
            for owner, count in owners.items():
                pages.add_metric([pool, owner], count)
        yield pages
        verdict = core.GaugeMetricFamily("kvproof_verdict", "1 for the verdict so far.", labels=["verdict"])
        for name in VERDICTS:
            verdict.add_metric([name], int(name == (status.verdict or "none")))
        yield verdict
        turns = core.GaugeMetricFamily("kvproof_turns", "Turns and requests by where they stand.", labels=["phase"])
        for phase in ("running", "prefilling", "waiting"):
            turns.add_metric([phase], getattr(status.load, phase))
        yield turns
        for name, text, value in (
            ("sessions", "Open sessions.", status.load.sessions),
            ("lag_bytes", "Bytes of the trace that were not read yet.", status.lag_bytes),
            ("lag_seconds", "How long ago the oldest of them were there.", status.lag_seconds),
            ("torn_bytes", "Bytes of a record that the writer has not finished.", status.held),
            ("events_per_second", "Events judged a second.", status.rate),
            ("compiled", "1 if the compiled checker judges.", int(status.compiled)),
            ("following", "1 if there is a trace.", int(status.phase != WAITING)),
        ):
            yield core.GaugeMetricFamily(f"kvproof_{name}", text, value=value)
        yield core.CounterMetricFamily(
            "kvproof_restarts", "How often the trace was truncated or replaced.", value=status.restarts
        )
