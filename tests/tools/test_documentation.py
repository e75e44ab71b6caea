"""What the documentation says of the rules is generated from them, and up to date."""

from __future__ import annotations

from pathlib import Path

from documentation import generated

ROOT = Path(__file__).parents[2]


def test_generated_pages_say_what_the_specification_says() -> None:
    stale = [path.name for path, text in generated(ROOT) if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run: make docs"
