"""The documentation as a site, in a real browser: it loads nothing from elsewhere, can be searched, and fits a telephone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from report_pages import served
from repository import ROOT

pytestmark = pytest.mark.browser
pytest.importorskip("mkdocs")
PAGES = ("index.html", "tutorials/prove_a_fix.html", "pictures/faults.html", "kill_matrix.html", "commands.html")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the site is served."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=300)
    with served(folder) as place:
        yield place


@pytest.mark.parametrize(("preferred", "scheme"), [("light", "default"), ("dark", "slate")])
def test_pages_load_without_errors_and_nothing_from_elsewhere(
    preferred: str, scheme: str, address: str, browser: Any
) -> None:
    page = browser.new_page(color_scheme=preferred)
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: None if asked.url.startswith((address, "data:")) else wrong.append(asked.url))
    for name in PAGES:
        page.goto(address + name)
        page.wait_for_load_state("networkidle")
        assert page.locator("h1").is_visible()
    assert page.evaluate("document.body.getAttribute('data-md-color-scheme')") == scheme
    assert wrong == []
    page.close()


def test_a_fault_is_found_by_search_and_its_drawing_is_seen(address: str, browser: Any) -> None:
    page = browser.new_page()
    page.goto(address + "index.html")
    page.keyboard.press("f")
    page.keyboard.type("F22862b")
    page.locator(".md-search-result__item").first.wait_for()
    page.goto(address + "pictures/faults.html#f22862b")
    drawing = page.locator("#f22862b ~ .scrolls svg").first
    assert drawing.is_visible() and "by F22862b" in drawing.text_content()
    page.close()


@pytest.mark.parametrize("name", PAGES)
def test_no_page_is_wider_than_a_telephone(name: str, address: str, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 400, "height": 800})
    page.goto(address + name)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.close()
