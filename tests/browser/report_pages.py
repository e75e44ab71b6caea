"""A report in a real browser: Debian's chromium, driven by Playwright, which brings none of its own here."""

from __future__ import annotations

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from command_line import run

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
READY = "document.documentElement.dataset.ready"
# As root, as CI runs it in a container, chromium refuses to make a sandbox of its own.
OPTIONS = ("--no-sandbox", "--force-color-profile=srgb")


def browser_path() -> str | None:
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


@dataclass
class Opened:
    """A page, and whatever it complained of or asked for beyond itself."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def view(self, expression: str) -> Any:
        """The value of an expression about `view`, what the page shows."""
        return self.page.evaluate(f"(() => {{ const view = window.kvproofView; return {expression}; }})()")

    @property
    def opened_in_ms(self) -> int:
        """From the begin of loading to the charts being drawn, as the page itself says."""
        return int(self.page.evaluate(READY))

    def box(self, chart: str) -> dict[str, float]:
        """Where a chart is drawn, once it can be seen."""
        place = self.page.locator(f"#{chart} .u-over")
        place.scroll_into_view_if_needed()
        self.page.evaluate(f"document.querySelector('#{chart} .u-over').scrollIntoView({{block: 'center'}})")
        return dict(place.bounding_box())

    def drag(self, chart: str, begin: tuple[float, float], end: tuple[float, float]) -> None:
        """With the mouse, from one place of a chart to another, in pixels."""
        box, mouse = self.box(chart), self.page.mouse
        mouse.move(box["x"] + begin[0], box["y"] + begin[1])
        mouse.down()
        mouse.move(box["x"] + end[0], box["y"] + end[1], steps=4)
        mouse.up()

    def point(self, chart: str, x: float, y: float) -> str:
        """Move the mouse to an event and a line of a chart; what the tooltip says."""
        box = self.box(chart)
        across = self.view(f"view.chart('{chart}').plot.valToPos({x}, 'x')")
        down = self.view(f"view.chart('{chart}').plot.valToPos({y}, 'y')")
        self.page.mouse.move(box["x"] + across, box["y"] + down)
        return str(self.page.locator("#tip").inner_text()) if self.page.locator("#tip").is_visible() else ""


@contextmanager
def opened(browser: Any, path: Path, *, has_charts: bool = True, **options: Any) -> Iterator[Opened]:
    """Open a report and wait until its charts, if it has any, are drawn. `options`: of the browser's context."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    page = context.new_page()
    shown = Opened(page)
    page.on("console", lambda message: shown.complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: shown.complaints.append(str(error)))
    page.on("request", lambda request: shown.requests.append(request.url))
    try:
        page.goto(path.as_uri())
        if has_charts:
            page.wait_for_function(READY, timeout=60_000)
        yield shown
    finally:
        context.close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine; gives its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


def report(trace: Path, place: Path) -> Path:
    """The page of a trace."""
    result = run("explain", trace, "--html", place, "--quiet")
    assert result.exit_code in (0, 1), result.output
    return place
