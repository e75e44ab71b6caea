"""The page of `kvproof explain --html`, in a real browser: it opens, asks for nothing, and shows what broke."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'kvproof[browser]'")

from command_line import run
from report_pages import Opened, opened, report
from run_traces import renamed
from trace_events import written

from kvproof.conformance.traces.open_trace import read_trace

pytestmark = pytest.mark.browser
HOSTILE = "</script><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`retract.jsonl`: F22862b frees page 9 at event 34. `storm.jsonl`: the same among many sessions. `window.jsonl` conforms."""
    folder = tmp_path_factory.mktemp("reports")
    fault = ("--page-size", 4, "--fault", "F22862b")
    for name, options in {
        "retract": ("--scenario", "retract", *fault),
        "storm": ("--scenario", "storm", "--seed", 3, *fault),
        "window": ("--scenario", "window", "--page-size", 4),
    }.items():
        assert run("record", *options, "--out", folder / f"{name}.jsonl").exit_code == 0
        report(folder / f"{name}.jsonl", folder / f"{name}.html")
    return folder


@pytest.fixture
def retract(browser: Any, traces: Path) -> Iterator[Opened]:
    with opened(browser, traces / "retract.html") as shown:
        yield shown


@pytest.mark.parametrize("name", ["retract", "storm", "window"])
def test_it_opens_without_a_complaint_and_asks_for_nothing_but_itself(browser: Any, traces: Path, name: str) -> None:
    page = traces / f"{name}.html"
    with opened(browser, page) as shown:
        assert shown.complaints == []
        assert shown.requests == [page.as_uri()]
        assert shown.page.locator("canvas").count() >= 3


def test_the_policy_refuses_every_request_and_every_script_that_is_not_its_own(retract: Opened) -> None:
    retract.page.evaluate(
        "() => { const script = document.createElement('script'); script.textContent = 'document.title = \"run\"';"
        " document.body.append(script); return fetch('https://example.com/').catch(() => 0); }"
    )
    assert retract.page.title() != "run"
    assert any("Content Security Policy" in complaint for complaint in retract.complaints)
    assert len(retract.requests) == 1, "nothing went out"


def test_the_bad_event_is_said_and_marked(retract: Opened) -> None:
    broke = retract.page.locator("#broke").inner_text()
    assert retract.page.locator("h1").inner_text() == "page 9 was freed; the owner was session s"
    moved = retract.page.locator(".moved").inner_text().split("\n")
    assert moved == ["page 9", "session s", "before", "match_slot →", "free list", "after", "session s", "by the rule"]
    assert "a free starts on a page boundary" in broke
    assert "F22862b" in broke and "kvproof replay" in broke
    assert "This is the bad event" in retract.page.locator("#said").inner_text()
    assert "34" in retract.page.locator("#rows tr.bad").inner_text()
    assert red_pixels(retract, "map", 34, 8.5) > 20, "a cross on page 9"
    assert red_pixels(retract, "map", 20, 3.5) == 0


def red_pixels(shown: Opened, chart: str, x: float, y: float) -> int:
    """Pixels in the colour of what is bad, within 12 of a place of a chart."""
    return int(
        shown.view(
            f"""(() => {{
              const u = view.chart('{chart}').plot, x = u.valToPos({x}, 'x', true), y = u.valToPos({y}, 'y', true);
              const pixels = u.ctx.getImageData(x - 12, y - 12, 24, 24).data;
              const bad = rgb(view.theme.bad); let found = 0;
              for (let i = 0; i < pixels.length; i += 4)
                found += bad.every((part, n) => Math.abs(part - pixels[i + n]) < 24);
              return found;
              function rgb(text) {{ const n = parseInt(text.slice(1), 16); return [n >> 16, (n >> 8) & 255, n & 255]; }}
            }})()"""
        )
    )


def test_pointing_at_a_page_says_whose_it_is_since_when_and_by_which_action(retract: Opened) -> None:
    said = retract.point("map", 32.5, 8.5)
    assert [line.strip() for line in said.splitlines()] == [
        "page 9",
        "session s",
        "since event 30: extend of session s, turn s-3, row 1",
        "at event 32",
        "moved wrongly by the bad event",
    ]
    assert "tree" in retract.point("map", 20.5, 0.5)
    assert "free list" in retract.point("map", 2.5, 0.5)


def test_pointing_at_the_timeline_says_what_happened_and_the_lengths(retract: Opened) -> None:
    said = retract.point("timeline", 30.2, 0.5)
    assert said.splitlines()[:2] == ["event 30: extend", "session s, turn s-3, row 1"]
    assert "committed 33, allocated 33, protected 8" in " ".join(said.split()) and "2 pages taken" in said


def test_dragging_zooms_all_charts_and_a_double_click_shows_all_again(retract: Opened) -> None:
    whole = retract.view("view.range")
    width = retract.box("lengths")["width"]
    retract.drag("lengths", (width * 0.5, 40), (width * 0.8, 60))
    low, high = retract.view("view.range")
    assert whole[0] + 10 < low < high < whole[1] - 4
    for chart in ("timeline", "map", "lengths"):
        assert retract.view(f"view.chart('{chart}').plot.scales.x.min") == pytest.approx(low)
    retract.page.locator("#lengths .u-over").dblclick()
    assert retract.view("view.range") == pytest.approx(whole)


def test_a_drag_over_the_map_zooms_pages_too(browser: Any, traces: Path) -> None:
    with opened(browser, traces / "storm.html") as shown:
        all_pages = shown.view("view.pageRange")
        shown.drag("map", (300, 60), (500, 200))
        low, high = shown.view("view.pageRange")
        assert high - low < (all_pages[1] - all_pages[0]) * 0.7
        assert shown.view("view.range[1] - view.range[0]") < 200


def test_all_can_be_done_by_keys(retract: Opened) -> None:
    page = retract.page
    page.locator("#charts").focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#said").inner_text().startswith("event 33, step 9: retract of session s")
    page.keyboard.press("+")
    narrow = retract.view("view.range[1] - view.range[0]")
    page.keyboard.press("Home")
    assert retract.view("view.range[1] - view.range[0]") > narrow
    page.keyboard.press("n")
    assert retract.view("view.story.owners[view.chosen]") == "session t"
    page.keyboard.press("b")
    assert retract.view("view.story.owners[view.chosen]") == "session s"
    assert "This is the bad event" in page.locator("#said").inner_text()
    page.keyboard.press("]")
    assert retract.view("view.pageRange[1] - view.pageRange[0]") < 9


def test_the_bad_page_is_seen_after_every_way_to_it(browser: Any, traces: Path) -> None:
    with opened(browser, traces / "storm.html") as shown:
        number = shown.view("view.runs.number.get(35)") + 0.5
        assert red_pixels(shown, "map", 364, number) > 10, "as it opens"
        shown.page.locator("#to-bad").click()
        assert red_pixels(shown, "map", 364, number) > 20, "zoomed to it"
        assert shown.view("view.chart('lengths').plot.scales.y.max") > 13, "lengths of session s7 fit"
        shown.page.locator("#pages-in").click()
        shown.page.locator("#whole").click()
        shown.page.locator("#theme").click()
        assert red_pixels(shown, "map", 364, number) > 10, "in the dark, all in view again"
        assert "session s7" in shown.point("map", 360, number)


def test_lengths_are_drawn_until_the_row_is_gone(browser: Any, traces: Path) -> None:
    """A session holds its slot between its last turn and its close: the lengths hold until then."""
    with opened(browser, traces / "window.html") as shown:
        ends = shown.view(
            """(() => {
              const { events } = view.story, mine = view.story.ofLedger.get(view.chosen);
              const n = mine.findIndex((i, n) => n && events.told_by[mine[n - 1]] && !events.told_by[i]);
              const [xs, c] = view.chart('lengths').data(), at = xs.indexOf(view.xs[mine[n]]);
              return [c[at], c[at - 1], events.c[mine[n - 1]], xs[at] - xs[at - 1]];
            })()"""
        )
        assert ends[0] is None and ends[1] == ends[2] and ends[3] < 0.02


def test_every_control_is_reached_by_tab_and_has_a_name(retract: Opened) -> None:
    names = retract.page.evaluate(
        "() => [...document.querySelectorAll('button, select')].map((e) => e.ariaLabel || e.textContent || '')"
    )
    assert all(name.strip() for name in names)
    assert retract.page.locator("#charts").get_attribute("tabindex") == "0"


def test_a_click_chooses_a_row_and_its_lengths(retract: Opened) -> None:
    box = retract.box("timeline")
    x, y = retract.view(
        "[view.chart('timeline').plot.valToPos(1, 'x'), view.chart('timeline').plot.valToPos(1.5, 'y')]"
    )
    retract.page.mouse.click(box["x"] + x + 2, box["y"] + y)
    assert retract.page.locator("#lengths-of").inner_text() == "session t, no row"
    assert retract.page.locator("#ledger").input_value() == str(retract.view("view.chosen"))


def test_dark_is_dark_and_can_be_switched(browser: Any, traces: Path) -> None:
    with opened(browser, traces / "retract.html", color_scheme="dark") as shown:
        back = "getComputedStyle(document.body).backgroundColor"
        assert shown.page.evaluate(back) == "rgb(16, 19, 22)"
        shown.page.locator("#theme").click()
        assert shown.page.evaluate(back) == "rgb(244, 246, 248)"
        assert shown.complaints == []


def test_print_is_light_and_without_controls(browser: Any, traces: Path) -> None:
    with opened(browser, traces / "retract.html", color_scheme="dark") as shown:
        shown.page.emulate_media(media="print")
        shown.page.wait_for_timeout(100)
        assert shown.page.evaluate("document.documentElement.dataset.theme") == "light"
        assert not shown.page.locator(".toolbar").is_visible()
        assert shown.page.locator("#broke").is_visible() and shown.page.locator("#map canvas").is_visible()
        assert len(shown.page.pdf()) > 10_000


def test_the_window_pool_has_a_map_of_its_own(browser: Any, traces: Path) -> None:
    with opened(browser, traces / "window.html") as shown:
        shown.page.locator("#pool").select_option("window")
        assert "window" in shown.view("view.pool")
        since, number, behind, owner = shown.view(
            """(() => {
              const runs = view.runs, run = runs.to.findIndex((owner, r) => owner > 2 && runs.behind[r]);
              const number = runs.at.findIndex((first) => first > run) - 1;
              return [runs.from[run], number, runs.behind[run], view.story.owners[runs.to[run]]];
            })()"""
        )
        said = shown.point("map", since + 0.5, number + 0.5)
        assert f"behind page {behind}" in said and owner in said
        assert shown.complaints == []


def test_names_of_sessions_and_turns_are_never_run(browser: Any, traces: Path, tmp_path: Path) -> None:
    hostile = renamed(traces / "retract.jsonl", lambda name: name + HOSTILE, tmp_path / "hostile.jsonl")
    with opened(browser, report(hostile, tmp_path / "hostile.html")) as shown:
        assert shown.complaints == [] and len(shown.requests) == 1
        assert shown.page.title() == f"page 9 was freed; the owner was session s{HOSTILE}: kvproof, hostile.jsonl"
        assert shown.page.locator("img").count() == 0
        assert HOSTILE in shown.page.locator("#broke").inner_text()
        assert HOSTILE in shown.point("map", 32.5, 8.5)


def test_a_trace_without_events_has_a_page_too(browser: Any, tmp_path: Path, traces: Path) -> None:
    empty = written(tmp_path / "empty.jsonl", [], read_trace(traces / "retract.jsonl").header)
    run("explain", empty, "--html", tmp_path / "empty.html")
    with opened(browser, tmp_path / "empty.html") as shown:
        assert shown.complaints == []
        assert shown.page.evaluate("document.documentElement.dataset.ready") == "empty"
