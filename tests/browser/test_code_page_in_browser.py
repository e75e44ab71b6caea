"""The page of `kvproof prove --code --html`, in a real browser: nothing runs, nothing is asked for, a phone shows it whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'kvproof[browser]'")

from command_line import require_exit
from report_pages import opened
from small_sglang import write_sglang

pytestmark = pytest.mark.browser
WIDTHS = (1280, 400)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("code")
    right, wrong = "(target + page_size - 1) // page_size", "target // page_size"
    require_exit(1, "prove", "--code", write_sglang(folder, right, wrong), "--html", folder / "code.html", "--no-cache")
    return folder / "code.html"


@pytest.mark.parametrize("width", WIDTHS)
def test_it_asks_for_nothing_and_is_as_wide_as_the_screen_without_a_script(
    browser: Any, page: Path, width: int
) -> None:
    options = {"viewport": {"width": width, "height": 900}, "java_script_enabled": False}
    with opened(browser, page, has_charts=False, **options) as shown:
        assert shown.complaints == [] and shown.requests == [page.as_uri()]
        for part in ("header", "#functions", "#rule-finish ol.run", "#rule-finish table.source"):
            box = shown.page.locator(part).first.bounding_box()
            assert box["x"] >= 0 and (part.endswith("source") or box["x"] + box["width"] <= width)
        assert shown.page.locator("main").bounding_box()["width"] <= width


def test_a_link_leads_from_the_table_to_the_difference(browser: Any, page: Path) -> None:
    with opened(browser, page, has_charts=False) as shown:
        shown.page.locator("#functions a").first.click()
        assert shown.page.url.endswith("#rule-match_slot")
        assert shown.page.evaluate("document.documentElement.scrollWidth") <= 1280
        assert shown.page.locator("#rule-match_slot ol.run li").last.inner_text().startswith("match_slot()")
