"""What the documentation says of the rules is generated from them, and up to date."""

from __future__ import annotations

from documentation import generated
from repository import ROOT


def test_generated_pages_say_what_the_specification_says() -> None:
    stale = [path.name for path, text in generated(ROOT) if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run: make docs"
