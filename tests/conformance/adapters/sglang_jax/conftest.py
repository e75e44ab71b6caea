"""The traces that the tests look at: every scenario at every page size, recorded once per commit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from sglang_jax_checkouts import PAGE_SIZES, RECORD_SCENARIOS, checked_out, run_on

RecordedOn = Callable[[str], Path]


@pytest.fixture(scope="session")
def tree_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The work tree of a commit."""
    folder = tmp_path_factory.mktemp("sglang-jax")
    trees: dict[str, Path] = {}

    def tree(commit: str) -> Path:
        if commit not in trees:
            trees[commit] = checked_out(commit, folder)
        return trees[commit]

    return tree


@pytest.fixture(scope="session")
def recorded_on(tree_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> RecordedOn:
    """The folder with the traces of a commit. Importing its scheduler takes seconds, a scenario takes none: all at once."""
    folder = tmp_path_factory.mktemp("traces")
    recorded: set[str] = set()

    def traces(commit: str) -> Path:
        into = folder / commit.replace(" ", "-")
        if commit not in recorded:
            sizes = map(str, PAGE_SIZES)
            run_on(tree_of(commit), RECORD_SCENARIOS, "sglang-jax", str(into), "--page-size", *sizes)
            recorded.add(commit)
        return into

    return traces
