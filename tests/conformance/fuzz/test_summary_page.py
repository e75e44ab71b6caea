"""The summary page: complete in itself, every number of the summary in it, and nothing of a target read as markup."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from html_tags import Tags

from kvproof.conformance.fuzz.summary_page import summary_page

HOSTILE = "<script>alert('x')</script>"


def summary(**other: Any) -> dict[str, Any]:
    names = ("seconds", "schedules", "steps", "actions", "branches", "invariants", "states", "found")
    rows = [(0.5, 3, 40, 9, 12, 8, 30, 0), (2.0, 20, 700, 15, 20, 12, 71, 1), (9.5, 90, 4200, 22, 27, 17, 160, 2)]
    found = {"number": 1, "signature": "stuck: I18", "faults": ["F994e"], "times": 7, "after_seconds": 1.25, "acts": 3}
    whole = {
        "target": "reference",
        "faults": ["F994e"],
        "settings": {"page_size": 4},
        "seed": 7,
        "jobs": 2,
        "died": 0,
        "seconds": 9.5,
        "schedules": 1234,
        "steps": 45678,
        "events": 98765,
        "steps_per_second": 4808,
        "found": [found, {**found, "number": 2, "signature": "crash", "faults": []}],
        "growth": [dict(zip(names, row, strict=True)) for row in rows],
    }
    return {**whole, **other}


def test_it_says_what_the_summary_says() -> None:
    page = summary_page(summary())
    for said in ("1,234", "45,678", "4,808", "98,765", "stuck: I18", "F994e", "new", "1.2 s", "page_size=4", "seed 7"):
        assert said in page
    tags = Tags(page)
    assert not tags.open and tags.names.count("svg") == 4 and tags.names.count("polyline") == 6


def test_it_needs_nothing_from_elsewhere() -> None:
    page = summary_page(summary())
    links = [attrs[name] for _, attrs in Tags(page).seen for name in ("href", "src") if name in attrs]
    assert links == ["1/report.txt", "2/report.txt"]
    assert "http" not in page and "url(" not in page and "@import" not in page
    assert "prefers-color-scheme: dark" in page


def test_nothing_that_a_target_says_is_markup() -> None:
    found = {"number": HOSTILE, "signature": HOSTILE, "faults": [HOSTILE], "times": 7, "after_seconds": 1, "acts": 3}
    page = summary_page(
        summary(target=HOSTILE, settings={HOSTILE: HOSTILE}, faults=[HOSTILE], seed=HOSTILE, found=[found])
    )
    assert "script" not in Tags(page).names and HOSTILE not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize("growth", [[], summary()["growth"][:1]])
def test_a_campaign_that_was_short_has_a_page(growth: list[dict[str, Any]]) -> None:
    page = summary_page(summary(growth=growth, found=[]))
    assert "Nothing." in page and not Tags(page).open


def test_the_curve_of_findings_goes_in_stairs() -> None:
    page = summary_page(summary())
    (points,) = [line for line in page.split("<polyline")[1:] if "c0" in line][-1:]
    places = [tuple(map(float, point.split(","))) for point in points.split('"')[3].split()]
    assert len(places) == 7 and all(a[0] == b[0] or a[1] == b[1] for a, b in pairwise(places))
