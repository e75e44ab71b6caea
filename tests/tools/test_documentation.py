"""What the documentation says of the rules is generated from them, and up to date."""

from __future__ import annotations

import pytest
from documentation import GENERATED
from repository import ROOT

BY_PROOFS = ("docs/kill_matrix.md", "conformance/fuzz/seeds.jsonl")
"""Of these each fault is proved to be one: slow, and run by `make test-docs`."""


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow if page in BY_PROOFS else ()) for page in GENERATED]
)
def test_a_generated_page_says_what_the_specification_says(page: str) -> None:
    assert (ROOT / page).read_text(encoding="utf-8") == GENERATED[page](), "run: make docs"
