"""Imports inside functions: only for what may not be installed, and at the few doors that are kept light.

The direction of imports is a contract of its own, in pyproject.toml (`make lint`).
"""

import pytest
from import_graph import imports_of, modules, needing_an_option

DOORS = {
    ("kvproof.conformance.cli.program", "kvproof.conformance.cli.cli"): "Ctrl-C is answered while the rest is imported",
    ("kvproof.conformance.adapters.sglang.plugin", "kvproof.conformance.adapters.sglang.capture"): (
        "SGLang loads the plugin in each process of a server, also where nothing is recorded"
    ),
    ("kvproof.conformance.adapters.sglang.preload.sitecustomize", "kvproof.conformance.adapters.sglang.capture"): (
        "Python loads it in each process"
    ),
}
"""Who imports what later, and why."""


@pytest.mark.parametrize("module", modules())
def test_a_module_imports_at_its_top(module: str) -> None:
    """Also for types only: an import that a type checker alone sees hides a cycle."""
    late = [
        str(found)
        for found in imports_of(module)
        if not found.at_once
        and found.target in modules()
        and found.target not in needing_an_option()
        and (module, found.target) not in DOORS
    ]
    assert not late, "import these at the top of the file"


def test_no_exception_is_left_over() -> None:
    late = {(found.importer, found.target) for module in modules() for found in imports_of(module) if not found.at_once}
    assert DOORS.keys() <= late
