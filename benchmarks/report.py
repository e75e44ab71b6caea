"""How long a report takes to write, how large it is, and how fast it opens in a browser: `make bench-report`.

Traces of a workload, recorded on the reference and repeated under fresh names (between two of them the tree evicts all), with
the last event made wrong. Opened in Debian's chromium without a display, each page in a fresh context: from the begin of
loading to the three charts being drawn, as the page says; and how long it takes to draw all anew, which is what zooming costs.

Writes benchmarks/results/report.md. Needs what `make test-browser` installs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from measuring import CLI, machine, say, spread

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "tests" / folder) for folder in ("browser", "helpers")]

from report_pages import OPTIONS, browser_path, opened  # noqa: E402

from kvproof.conformance.replay.page_book import TREE  # noqa: E402
from kvproof.conformance.replay.replay import Replayer  # noqa: E402
from kvproof.conformance.traces.open_trace import read_trace, write_trace  # noqa: E402
from kvproof.spec.trace import Event  # noqa: E402

PAGE = HERE / "results" / "report.md"
WORKLOAD = HERE.parent / "examples" / "mooncake_conversation_excerpt.jsonl"
SIZES = (1_000, 10_000, 100_000)
GOALS = {1_000: 1.0, 100_000: 5.0}
PAGE_SIZES = (16, 4)
TIMES_OPENED = 5


def recorded(page_size: int, folder: Path) -> tuple[Any, list[Event]]:
    """Header and events of the workload; the last one evicts all that the tree holds."""
    path = folder / f"pages-of-{page_size}.jsonl"
    options = ["--workload", str(WORKLOAD), "--page-size", str(page_size), "--out", str(path)]
    subprocess.run([*CLI, "record", "--quiet", *options], check=True)
    reader = read_trace(path)
    replayer, events = Replayer(reader, []), list(reader.events_from(0))
    for line, event in enumerate(events, 2):
        assert replayer.feed(line, event) is None
    in_tree = tuple(page for page, owner in sorted(replayer.book.owned()) if owner == TREE)
    return reader.header, [*events, Event(seq=len(events), action="evict", free=in_tree)]


def repeated(events: list[Event]) -> Iterator[Event]:
    """The events, repeated for ever, each time of other sessions and turns and in later steps."""
    steps = 1 + max(event.step or 0 for event in events)
    for number in count():
        for event in events:
            fresh = {name: f"{value}/{number}" for name in ("session", "turn") if (value := getattr(event, name))}
            step = None if event.step is None else event.step + number * steps
            yield event.model_copy(update={**fresh, "step": step})


def write(path: Path, header: Any, events: list[Event], many: int) -> None:
    """A trace of so many events; the last is a step whose length is one too long."""
    with write_trace(path, header) as writer:
        for seq, event in enumerate(repeated(events)):
            is_last = seq >= many - 1 and event.after.kv_committed_len is not None
            if is_last:
                wrong = event.after.model_copy(update={"kv_committed_len": event.after.kv_committed_len + 1})
                event = event.model_copy(update={"after": wrong})
            writer.write(event.model_copy(update={"seq": seq}))
            if is_last:
                return


def opened_in(browser: Any, page: Path) -> tuple[list[float], list[float]]:
    """Seconds to open, and to draw all again."""
    opening, drawing = [], []
    for _ in range(TIMES_OPENED):
        with opened(browser, page) as shown:
            assert not shown.complaints and len(shown.requests) == 1, shown.complaints
            opening.append(shown.opened_in_ms / 1000)
            drawing.append(shown.view(REDRAWN) / 1000)
    return opening, drawing


REDRAWN = """(async () => { view.whole(); await null; const began = performance.now();
  for (const { plot } of view.charts) plot.redraw(false, true);
  await new Promise((drawn) => setTimeout(drawn));
  view.charts.forEach(({ plot }) => plot.ctx.getImageData(0, 0, 1, 1)); return performance.now() - began; })()"""
"""uPlot draws once what is called has returned; reading a pixel waits until it is drawn."""


def rows(browser: Any, folder: Path) -> Iterator[str]:
    for page_size in PAGE_SIZES:
        header, events = recorded(page_size, folder)
        for many in SIZES:
            trace, page = folder / "trace.jsonl", folder / "page.html"
            write(trace, header, events, many)
            began = time.perf_counter()
            done = subprocess.run([*CLI, "explain", str(trace), "--html", str(page), "--quiet"], check=False)
            written = time.perf_counter() - began
            assert done.returncode == 1, "the last event is wrong"
            say(f"{many} events, pages of {page_size}: {page.stat().st_size / 2**20:.2f} MiB in {written:.1f} s")
            opening, drawing = opened_in(browser, page)
            goal = f"{GOALS[many]:g}" if many in GOALS else ""
            size = f"{page.stat().st_size / 2**20:.2f}"
            yield f"| {many:,} | {page_size} | {written:.1f} | {size} | {spread(opening)} | {goal} | {spread(drawing)} |"


def main() -> None:
    from playwright.sync_api import sync_playwright

    path = browser_path()
    assert path is not None, "no chromium: make test-browser"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(OPTIONS))
        table = list(rows(browser, Path(folder)))
        version = browser.version
        browser.close()
    lines = [
        "# Reports: how fast they are written and opened",
        "",
        f"Written by `make bench-report`. {machine(f'Chromium {version}')}; load at the end: {os.getloadavg()[0]:.0f}.",
        f"Seconds; median (smallest to largest) of {TIMES_OPENED}. Opened: from the begin of loading to all charts drawn. Drawn "
        "again: all charts, the whole trace in view.",
        "",
        "| events | page size | written | MiB | opened | goal | drawn again |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *table,
        "",
        "A trace of the workload in `examples/`, repeated under fresh names, whose last event is wrong: what is repeated packs "
        "better than what is not. Writing is the interpreted replay, once, and packing.",
    ]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
