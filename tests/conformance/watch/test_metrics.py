"""The metrics are scraped over HTTP and parsed by the package that defines their form."""

from __future__ import annotations

import socket
import sys
import urllib.request
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import refusal, run
from watch_status import STATUS

pytest.importorskip("prometheus_client")
from prometheus_client.parser import text_string_to_metric_families

from kvproof.conformance.errors import UserError
from kvproof.conformance.watch.metrics import Metrics
from kvproof.conformance.watch.status import Status

VIOLATING = replace(
    STATUS, verdict="violates", unjudged=7, violations=2, held=12, followed=Counter(S0511a=4), restarts=1
)


def scraped(port: int) -> dict[tuple[str, ...], float]:
    """Each value by its name and its labels in the order of theirs."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300).read().decode()
    return {
        (sample.name, *(label for _, label in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_scrape_shows_each_value_of_the_status_that_was_told_last() -> None:
    told = [VIOLATING]
    metrics = Metrics("127.0.0.1", 0, lambda: told[-1])
    try:
        values = scraped(metrics.port)
        told.append(Status("out/live.jsonl"))
        later = scraped(metrics.port)
    finally:
        metrics.close()
    assert values == {
        ("kvproof_violations_total",): 2,
        ("kvproof_unjudged_events_total",): 7,
        ("kvproof_sessions",): 120,
        ("kvproof_lag_bytes",): 3 * 2**20,
        ("kvproof_lag_seconds",): 1.25,
        ("kvproof_torn_bytes",): 12,
        ("kvproof_events_per_second",): 103221.4,
        ("kvproof_compiled",): 1,
        ("kvproof_following",): 1,
        ("kvproof_restarts_total",): 1,
        ("kvproof_events_total", "extend_chunk"): 1,
        ("kvproof_events_total", "decode"): 900000,
        ("kvproof_events_total", "evict"): 3,
        ("kvproof_known_deviations_total", "S0511a"): 4,
        **{("kvproof_pages", owner, pool): n for pool, owners in STATUS.pools.items() for owner, n in owners.items()},
        ("kvproof_verdict", "conforms"): 0,
        ("kvproof_verdict", "violates"): 1,
        ("kvproof_verdict", "incomplete"): 0,
        ("kvproof_verdict", "none"): 0,
        ("kvproof_turns", "running"): 30,
        ("kvproof_turns", "prefilling"): 4,
        ("kvproof_turns", "waiting"): 17,
    }
    assert later["kvproof_following",] == later["kvproof_violations_total",] == 0
    assert later["kvproof_verdict", "none"] == 1 and not any(name == "kvproof_pages" for name, *_ in later)


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=rf"--metrics-port {port}: 127.0.0.1 cannot be listened on"):
            Metrics("127.0.0.1", port, lambda: STATUS)


def test_without_the_package_the_user_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    said = refusal("watch", tmp_path / "t.jsonl", "--once", "--metrics-port", "0")
    assert "pip install 'kvproof[watch]'" in said


def test_a_watch_serves_them_and_says_where(tmp_path: Path) -> None:
    assert run("record", "--scenario", "basic", "--out", tmp_path / "t.jsonl").exit_code == 0
    result = run("watch", tmp_path / "t.jsonl", "--metrics-port", "0")
    assert result.exit_code == 0 and "metrics: http://127.0.0.1:" in result.stdout
