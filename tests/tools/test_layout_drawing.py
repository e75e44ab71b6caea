"""The drawing of the layout is that of the imports as they are; levels and cycles are counted right on graphs made by hand."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from layout_drawing import (
    GROUND,
    ROOT,
    Module,
    arrows,
    box_of,
    boxes,
    cycles,
    drawing,
    generated,
    import_graph,
    levels,
    measures,
    modules,
    rows,
)

CHAIN = {"spec": set(), "model": {"spec"}, "replay": {"model", "spec"}, "cli": {"replay", "spec"}}
CIRCLE = {"a": {"b"}, "b": {"c"}, "c": {"a", "ground"}, "ground": set(), "top": {"a"}}


def test_the_page_has_the_drawing_that_the_command_makes() -> None:
    stale = [str(path) for path, text in generated(ROOT).items() if (ROOT / path).read_text(encoding="utf-8") != text]
    assert stale == [], "run: make layout"


def test_every_module_is_in_one_box_and_every_box_is_drawn() -> None:
    found = modules(ROOT)
    drawn = boxes(import_graph(found))
    assert len(found) > 200
    alone = {name for name in drawn if name != GROUND}
    others = {box_of(name) for name in found} - alone - {"", "conformance"}
    assert others and all((ROOT / f"{name}.py").exists() for name in others)  # the modules that are one box
    picture = drawing(drawn, {})
    ElementTree.fromstring(picture)  # well-formed
    assert [box for box in drawn if f">{box}</text>" not in picture] == []


def test_a_package_stands_above_all_that_it_imports() -> None:
    assert levels(CHAIN) == {"spec": 1, "model": 2, "replay": 3, "cli": 4}
    assert cycles(CHAIN) == []


def test_an_import_that_a_longer_chain_implies_is_not_drawn() -> None:
    assert arrows(CHAIN) == [("cli", "replay"), ("model", "spec"), ("replay", "model")]


def test_a_level_of_many_boxes_is_drawn_in_rows_of_equal_length() -> None:
    wide = {"top": {"a", "b", "c", "d", "e", "f"}, **{name: set() for name in "abcdef"}}
    assert [(level, len(row)) for level, row in rows(wide)] == [(2, 1), (1, 3), (1, 3)]


def test_packages_that_import_each_other_are_one_cycle_on_one_level() -> None:
    assert cycles(CIRCLE) == [["a", "b", "c"]]
    assert levels(CIRCLE) == {"a": 2, "b": 2, "c": 2, "ground": 1, "top": 3}
    assert 'class="cycle"' in drawing(CIRCLE, {})
    assert 'class="cycle"' not in drawing(CHAIN, {})


@pytest.mark.parametrize(
    ("source", "imported"),
    [
        ("import kvproof.spec.state", {"kvproof.spec.state"}),
        ("from kvproof.spec import state, SPEC_VERSION", {"kvproof.spec", "kvproof.spec.state"}),
        ("from kvproof.spec.state import Ledger", {"kvproof.spec.state"}),
        ("from . import other", {"kvproof.model.other"}),
        ("from ..spec.state import Ledger", {"kvproof.spec.state"}),
        ("def later():\n    import kvproof.spec.state", {"kvproof.spec.state"}),
        ("import json\nfrom pathlib import Path", set()),
    ],
)
def test_imports_are_read_wherever_they_stand(source: str, imported: set[str], tmp_path: Path) -> None:
    (empty := tmp_path / "empty.py").touch()
    (reader := tmp_path / "reader.py").write_text(source)
    found = {name: Module(name, empty) for name in ("kvproof.spec", "kvproof.spec.state", "kvproof.model.other")}
    graph = import_graph({**found, "kvproof.model.reader": Module("kvproof.model.reader", reader)})
    assert graph["kvproof.model.reader"] == imported


def test_the_measures_count_what_is_there() -> None:
    said = "\n".join(measures(ROOT))
    assert f"lines in {len(modules(ROOT))} modules" in said
    assert "longest functions: kvproof." in said
