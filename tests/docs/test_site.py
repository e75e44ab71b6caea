"""The site builds with every link in place, needs no network, and draws every action, invariant and fault."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import completed
from repository import ROOT

from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import MACHINES, every_invariant

pytest.importorskip("mkdocs")
FETCHED = re.compile(
    r'<(?:script|img|iframe|source)[^>]+src="(?:https?:)?//|<link[^>]+rel="(?!canonical)[^"]*"[^>]+href="https?://'
)
"""What a browser would load from elsewhere when a page is opened."""
DRAWN = {
    "actions": [name for machine in MACHINES for name in machine.actions],
    "invariants": [name.lower() for name in every_invariant()],
    "faults": [name.lower() for name in FAULTS],
}
FIGURES = {
    "prove.md": ("165,900", "684,042"),
    "replay.md": ("4.30", "3,112"),
    "fuzz.md": ("26.0 s", "1.7 s", "2.7 s"),
}
"""What comparison.md says was measured, and where that stands."""


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site)]
    return completed(command, cwd=root, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, timeout=300)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(ROOT, folder)
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


@pytest.mark.slow
def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    assert [str(page.relative_to(site)) for page in pages if FETCHED.search(page.read_text(encoding="utf-8"))] == []
    assert not re.search(r"url\(\s*['\"]?https?:", (site / "site.css").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", DRAWN)
def test_each_of_them_has_its_drawing(kind: str, site: Path) -> None:
    page = (site / "pictures" / f"{kind}.html").read_text(encoding="utf-8")
    parts = re.split(r'<h[23] id="([^"]+)"', page)
    drawn = {name for name, text in zip(parts[1::2], parts[2::2], strict=True) if "<svg" in text}
    assert [name for name in DRAWN[kind] if name not in drawn] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("[code](../examples/nowhere.py)", ["links to examples/nowhere.py, which is not in the repository"]),
        (
            "[page](nowhere.md) [anchor](proving.md#nowhere)",
            ["'nowhere.md', but the target is not found", "does not contain an anchor '#nowhere'"],
        ),
    ],
)
def test_a_link_that_leads_nowhere_ends_the_build(broken: str, said: list[str], tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    for place in ROOT.iterdir():  # whatever pages link to
        if not (tmp_path / place.name).exists() and place.name != "out":
            (tmp_path / place.name).symlink_to(place)
    with (tmp_path / "docs" / "domain.md").open("a", encoding="utf-8") as page:
        page.write(f"\n{broken}\n")
    built = build(tmp_path, tmp_path / "site")
    assert built.returncode != 0
    assert all(line in built.stdout + built.stderr for line in said), built.stderr


@pytest.mark.parametrize("page", FIGURES)
def test_figures_of_the_comparison_are_those_that_were_measured(page: str) -> None:
    said = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    measured = (ROOT / "benchmarks" / "results" / page).read_text(encoding="utf-8")
    assert [figure for figure in FIGURES[page] if figure not in said or figure not in measured] == []


def test_a_browser_that_fetches_is_noticed() -> None:
    assert FETCHED.search('<script src="https://unpkg.com/x"></script>')
    assert FETCHED.search('<link rel="stylesheet" href="https://fonts.googleapis.com/css">')
    assert not FETCHED.search('<a href="https://github.com/x">x</a><script src="assets/x.js"></script>')
