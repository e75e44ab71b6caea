"""For tests in a browser: one that is started once for each module, and the helpers of the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))


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
