"""The view at two widths, and the lines of a log: what is drawn is what the status says."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console
from watch_status import STATUS

from kvproof.conformance.report.show_watch import KINDS, OWNERS, cells, line_of, screen, size
from kvproof.conformance.watch.status import IDLE, UNJUDGED, WAITING, Pace, Status


def drawn(status: Status, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=40, force_terminal=False, highlight=False)
    console.print(screen(status, width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_it_fits_and_shows_pools_load_rate_lag_and_verdict(width: int) -> None:
    lines = drawn(STATUS, width)
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    for part in (
        "CONFORMS so far: 1,234,567 events",
        "█ running 3,383 21%",
        "▓ slots 1 0%",
        "▒ tree 9,000 55%",
        "· free 4,000 24%",
        "none, 8 pages of 4, 2 rows",
        "120 sessions, 30 running, 4 in prefill, 17 waiting",
        "103,221 events/s, checker compiled",
        "lag 3.0 MiB, 1.2 s",
        f"2 of {len(KINDS)} kinds seen: decode 900,000, evict 3",
    ):
        assert part in text, part


@pytest.mark.parametrize("width", [80, 120])
def test_bars_are_as_wide_as_the_view_and_whoever_has_a_page_has_a_cell(width: int) -> None:
    bars = [line.split()[-1] for line in drawn(STATUS, width) if "·" * 5 in line]
    assert [len(bar) for bar in bars] == [width - 11] * 2
    assert bars[0].count("▓") == 1 and bars[0].count("█") == pytest.approx((width - 11) * 3383 / 16384, abs=1)


def test_cells_fill_the_width_whatever_the_shares_are() -> None:
    for pages in ({"a": 1}, {"a": 1, "b": 10**9}, dict.fromkeys("abcdefg", 3), {"a": 2, "b": 1, "c": 1}):
        shares = cells(pages, 20)
        assert sum(shares.values()) == 20 and min(shares.values()) >= 1
    assert cells({}, 20) == {}


def test_every_kind_of_owner_that_is_counted_is_drawn() -> None:
    for pool in STATUS.pools.values():
        assert set(pool) <= set(OWNERS)


AFTER_A_VIOLATION = {
    "phase": UNJUDGED,
    "verdict": "violates",
    "violations": 1,
    "unjudged": 500,
    "first_violation": "event 3: extend (s)",
}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (replace(STATUS, **AFTER_A_VIOLATION), "VIOLATES 1 in 1,234,567 events; the first: event 3: extend (s)"),
        (replace(STATUS, **AFTER_A_VIOLATION), "500 events came after it and are counted, not judged"),
        (replace(STATUS, phase=IDLE), "complete as it stands; the server is idle"),
        (Status("x.jsonl", WAITING), "waiting for the trace"),
    ],
)
def test_the_phase_is_said(status: Status, said: str) -> None:
    assert said in " ".join(" ".join(drawn(status, 120)).split())


def test_a_line_of_a_log_says_the_same() -> None:
    assert line_of(STATUS) == (
        "61 s | conforms, so far | 1234567 events, 103221/s | lag 3.0 MiB, 1.2 s | "
        "pages: running 3383 slots 1 tree 9000 free 4000 | window pages: running 40 slots 40 tree 20 free 100 | "
        f"120 sessions, 30 running, 4 in prefill, 17 waiting | 2 of {len(KINDS)} kinds of action"
    )
    assert line_of(replace(STATUS, held=9)).count("9 bytes of a record that is not whole") == 1


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (2048, "2.0 KiB"), (2**31, "2.0 GiB")])
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


def test_the_lag_is_how_long_ago_the_oldest_unread_byte_was_there() -> None:
    pace = Pace(0.0)
    pace.saw(0.0, 100, 100, 0)
    assert pace.lag_seconds(5.0) == 0.0
    pace.saw(6.0, 300, 100, 50)
    pace.saw(7.0, 500, 100, 50)
    assert pace.lag_seconds(8.0) == 2.0
    pace.saw(8.0, 500, 300, 100)
    assert pace.lag_seconds(8.0) == 1.0
    pace.saw(9.0, 500, 500, 200)
    assert pace.lag_seconds(10.0) == 0.0
    assert pace.rate() == 50.0, "of the last five seconds"
