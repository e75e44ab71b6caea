"""Units are types: mypy refuses a rule that mixes tokens and pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

import kvproof.spec

RULE = """
from kvproof.spec.domain import Count, Domain, Flag, Length, smaller
from kvproof.spec.effects import Free
from kvproof.spec.state import Ledger


def rule(d: Domain, s: Ledger) -> {returns}:
    return {expression}
"""
RIGHT = [
    ("Length", "s.kv_committed_len + d.tokens(s.tree_end)"),
    ("Count", "s.tree_end + d.ceil_pages(s.kv_committed_len)"),
    ("Flag", "d.every(s.kv_committed_len <= d.row_width, s.pending <= 1)"),
]
WRONG = [
    ("Length", "s.kv_committed_len + s.tree_end", "Unsupported operand types for +"),
    ("Length", "s.kv_committed_len + 1", "Unsupported operand types for +"),
    ("Count", "s.tree_end - s.kv_committed_len", "Unsupported operand types for -"),
    ("Flag", "s.kv_committed_len <= s.row_end", "Unsupported operand types for <="),
    ("Length", "smaller(d, s.kv_committed_len, s.row_end)", "smaller"),
    ("Count", "d.ceil_pages(s.tree_end)", 'has incompatible type "int"; expected "Length"'),
    ("Free", "Free(s.tree_end, s.kv_committed_len)", 'has incompatible type "int"; expected "Length"'),
    ("Count", "s.kv_committed_len", "Incompatible return value type"),
]


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """What mypy says of each rule, by what it returns and its expression. One run for all: most of it is reading the packages."""
    folder = tmp_path_factory.mktemp("typed")
    package = folder / "kvproof"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "spec").symlink_to(Path(str(kvproof.spec.__file__)).parent)
    rules = [(returns, expression) for returns, expression, *_ in (*RIGHT, *WRONG)]
    for number, (returns, expression) in enumerate(rules):
        (folder / f"rule_{number}.py").write_text(RULE.format(returns=returns, expression=expression))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYPYPATH", str(folder))
        files = [str(folder / f"rule_{number}.py") for number in range(len(rules))]
        said, _, _ = api.run([*files, "--cache-dir", str(folder / "cache"), "--no-error-summary"])
    lines = said.splitlines()
    return {rule: "\n".join(line for line in lines if f"rule_{number}.py" in line) for number, rule in enumerate(rules)}


@pytest.mark.parametrize(("returns", "expression"), RIGHT)
def test_a_rule_that_keeps_units_apart_is_accepted(
    complaints: dict[tuple[str, str], str], returns: str, expression: str
) -> None:
    assert complaints[returns, expression] == ""


@pytest.mark.parametrize(("returns", "expression", "complaint"), WRONG)
def test_a_rule_that_mixes_tokens_and_pages_is_refused(
    complaints: dict[tuple[str, str], str], returns: str, expression: str, complaint: str
) -> None:
    assert complaint in complaints[returns, expression]
