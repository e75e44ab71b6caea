"""For tests in a browser: one that is started once for each module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from report_pages import OPTIONS, browser_path

    playwright_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'kvproof[browser]'")
    path = browser_path()
    if path is None:
        pytest.skip("no chromium: apt-get install chromium")
    with playwright_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(OPTIONS))
        yield chromium
        chromium.close()
