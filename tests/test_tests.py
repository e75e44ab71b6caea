"""The tests themselves: each asserts something, and each file stands where the module stands that it is about."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from repository import ROOT

HERE = ROOT / "tests"
THAT_ASSERT = ("assert_", "check_", "require_")
"""How the name of a function of the tests begins that asserts for its caller."""
OF_PYTEST = ("raises", "warns", "fail")

INTEGRATION = {
    "browser/test_perfetto_in_browser.py": "Perfetto's own page reads our time lines",
    "browser/test_report_in_browser.py": "a report in a real browser",
    "browser/test_site_in_browser.py": "the documentation in a real browser",
    "conformance/adapters/test_driven_adapters.py": "an adapter of another engine, written by the documentation",
    "conformance/adapters/test_ranks_recorded.py": "each rank has a trace of its own",
    "conformance/cli/test_ctrl_c.py": "Ctrl-C in each command",
    "conformance/cli/test_full_disk.py": "a full disk under each form of a trace",
    "conformance/compiled/test_checker_by_profile.py": "the compiled checker by the rules of each release",
    "conformance/report/formats/test_pictures.py": "ITF and Perfetto, read by the readers of others",
    "conformance/report/formats/test_reports.py": "JUnit, SARIF and NDJSON of one run, judged by the validators of others",
    "conformance/traces/test_columnar_damage.py": "any damage to a file in columns",
    "conformance/traces/test_columnar_queries.py": "a file in columns, read by pyarrow alone",
    "conformance/traces/test_hostile_traces.py": "traces that are made to do harm",
    "conformance/traces/test_lines_in_columns.py": "lines decoded at once are the events that are read one by one",
    "conformance/traces/test_no_content.py": "no trace has room for what a user wrote",
    "conformance/traces/test_untrusted_files.py": "links, devices and huge files in place of a trace",
    "docs/test_contributing.py": "what a contributor reads and fills in",
    "gpu/test_on_device.py": "the kernels on a device",
    "gpu/test_pools_on_device.py": "the pools on a device",
    "gpu/test_record.py": "whole runs on a device",
    "impl/test_device_run.py": "whole runs with the pools on the device's path",
    "impl/test_faults_show.py": "each fault of the reference, recorded and replayed",
    "impl/test_matrix.py": "each behaviour under every two settings",
    "impl/test_overlap.py": "the scheduler with steps that overlap",
    "impl/test_speculation.py": "the scheduler with drafts",
    "impl/test_window.py": "the scheduler with a sliding window",
    "model/test_interpreters_agree.py": "the oracle and Z3 on the same rules",
    "spec/test_types.py": "tokens and pages never mix, says mypy",
    "spec/test_tables.py": "every table of the rules is complete",
    "test_demo.py": "the demo of the readme",
    "test_github_action.py": "the GitHub action and the pre-commit hooks",
    "test_golden.py": "traces of real runs that are kept",
    "test_imports.py": "what each module of the package imports",
    "test_packaging.py": "what a user installs",
}
"""Tests of several modules together, each with what it is about."""
ANYTHING_IN = ("conformance/adapters/sglang", "conformance/adapters/sglang_jax")
"""Folders of tests of a whole real engine, in environments of their own."""


def test_every_test_asserts_something() -> None:
    assert [where for where, function in of_tests(("test_",)) if not asserts(function)] == []


def test_what_is_named_as_if_it_asserted_does() -> None:
    assert [where for where, function in of_tests(THAT_ASSERT) if not asserts(function)] == []


def test_a_test_that_asserts_nothing_is_noticed() -> None:
    def of(body: str) -> ast.FunctionDef:
        (function,) = ast.parse(f"def test_it():\n    {body}\n").body
        assert isinstance(function, ast.FunctionDef)
        return function

    assert not any(asserts(of(body)) for body in ("run()", "is_right(assert_it)", "x = 'assert it'", "log.checked()"))
    assert all(asserts(of(body)) for body in ("assert x", "with pytest.raises(E): run()", "result.assert_outcomes()"))


def of_tests(prefixes: tuple[str, ...]) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Every function of the tests whose name begins so, with its place."""
    pattern = "test_*.py" if prefixes == ("test_",) else "*.py"
    for path in sorted(HERE.rglob(pattern)):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith(prefixes):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node


def asserts(function: ast.FunctionDef) -> bool:
    called = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    names = [func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "") for func in called]
    is_asserting = any(name in OF_PYTEST or name.lower().startswith(("assert", *THAT_ASSERT)) for name in names)
    return is_asserting or any(isinstance(node, ast.Assert) for node in ast.walk(function))


def test_every_file_stands_where_its_module_does() -> None:
    """`spec/domain.py` by `tests/spec/test_domain.py`, and the package `tools/policies` by `tests/tools/test_policies.py`."""
    astray = [name for name in files_of_tests() if not about_one_module(name) and name not in INTEGRATION]
    assert astray == [], "name it after its module, or say in INTEGRATION what it is about"


def test_what_is_said_to_be_of_several_modules_is_there_and_of_none() -> None:
    assert [name for name in INTEGRATION if not (HERE / name).is_file() or about_one_module(name)] == []


def files_of_tests() -> list[str]:
    files = [path.relative_to(HERE).as_posix() for path in sorted(HERE.rglob("test_*.py"))]
    return [name for name in files if not name.startswith(tuple(f"{folder}/" for folder in ANYTHING_IN))]


def about_one_module(name: str) -> bool:
    """A module or a package of the same place, or a script beside the test."""
    path = Path(name)
    module = path.with_name(path.name.removeprefix("test_"))
    return (ROOT / module).is_file() or (ROOT / module.with_suffix("")).is_dir() or (HERE / module).is_file()
