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
    "browser": ("code_page_in_browser", "perfetto_in_browser", "report_in_browser", "site_in_browser"),
    "conformance/adapters": ("driven_adapters", "ranks_recorded"),
    "conformance/cli": ("ctrl_c", "every_command", "full_disk"),
    "conformance/cli/commands": ("prove_code",),
    "conformance/compiled": ("checker_by_profile",),
    "conformance/replay": ("late_results",),
    "conformance/report/formats": ("pictures", "reports"),
    "conformance/traces": (
        "columnar_damage",
        "columnar_queries",
        "hostile_traces",
        "lines_in_columns",
        "no_content",
        "untrusted_files",
    ),
    "docs": ("contributing", "readme", "words"),
    "gpu": ("on_device", "pools_on_device", "record"),
    "impl": ("device_run", "matrix", "overlap", "speculation", "window"),
    "model": ("interpreters_agree",),
    "model/code": ("against_python",),
    "spec": ("types", "tables"),
    "": ("demo", "github_action", "golden", "imports", "packaging"),
}
"""Tests of several modules together, by their folder; each says what it is about in its first line."""
ANYTHING_IN = ("conformance/adapters/sglang", "conformance/adapters/sglang_jax")
"""Folders of tests of a whole real engine, in environments of their own."""


def test_every_run_says_why_a_test_is_skipped() -> None:
    assert " -rfEs " in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


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
    astray = [name for name in files_of_tests() if not about_one_module(name) and name not in of_several_modules()]
    assert astray == [], "name it after its module, or say in INTEGRATION what it is about"


def test_what_is_said_to_be_of_several_modules_is_there_and_of_none_and_says_what_it_is_about() -> None:
    for name in of_several_modules():
        assert not about_one_module(name), name
        assert ast.get_docstring(ast.parse((HERE / name).read_text(encoding="utf-8"))), name


def of_several_modules() -> list[str]:
    return [Path(folder, f"test_{name}.py").as_posix() for folder, names in INTEGRATION.items() for name in names]


def files_of_tests() -> list[str]:
    files = [path.relative_to(HERE).as_posix() for path in sorted(HERE.rglob("test_*.py"))]
    return [name for name in files if not name.startswith(tuple(f"{folder}/" for folder in ANYTHING_IN))]


def about_one_module(name: str) -> bool:
    """A module or a package of the same place, or a script beside the test."""
    path = Path(name)
    module = path.with_name(path.name.removeprefix("test_"))
    return (ROOT / module).is_file() or (ROOT / module.with_suffix("")).is_dir() or (HERE / module).is_file()
