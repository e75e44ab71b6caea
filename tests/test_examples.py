"""Every example ends as it says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from command_line import PROGRAM, completed
from repository import ROOT

EXAMPLES = {
    "prove_a_variant.sh": "The first design is refuted, the second one proved.",
    "record_and_replay.sh": "The right run conforms; the bug is named, and shown by a few events.",
    "fuzz_a_module.sh": "Found, made small, and kept as a test that fails until the branch is repaired.",
    "query_a_trace.py": "The history of page 5",
}
VIOLATING = ROOT / "examples" / "traces" / "sglang-0.5.23-busy-twice.jsonl.gz"
ELSEWHERE = {"demo.sh", "my_branch.py"}
"""Run by test_demo.py, and by fuzz_a_module.sh."""


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_ends_as_it_says(example: str, tmp_path: Path) -> None:
    if example.endswith(".py"):
        pytest.importorskip("duckdb")
    tools = {"KVPROOF": PROGRAM, "PYTHON": sys.executable, "OUT": str(tmp_path)}
    command = [sys.executable if example.endswith(".py") else "bash", str(ROOT / "examples" / example)]
    done = completed(command, env={**os.environ, **tools}, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert EXAMPLES[example] in done.stdout


WITHOUT_EXTRAS = """
import sys
for extra in ("torch", "numpy", "numba", "pyarrow", "hypothesis", "cvc5", "triton", "sglang"):
    sys.modules[extra] = None  # an import of it fails
from kvproof.conformance.cli.program import main
main()
"""


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("replay", str(VIOLATING)), "(S0511c, "),
        (("explain", str(VIOLATING), "--html", "report.html"), "(S0511c, "),
        (("prove", "--fault", "S0511c"), "BROKEN"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_the_shipped_trace_is_judged_and_explained_without_any_extra(
    command: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    done = completed([sys.executable, "-c", WITHOUT_EXTRAS, *command], cwd=tmp_path, timeout=300)
    assert done.returncode == 1, done.stdout + done.stderr
    assert said in done.stdout


def test_every_example_is_run_and_listed() -> None:
    found = {path.name for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".sh")}
    assert found == set(EXAMPLES) | ELSEWHERE
    found |= {path.relative_to(ROOT / "examples").as_posix() for path in VIOLATING.parent.iterdir()}
    readme = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert [name for name in found if f"`{name}`" not in readme] == []
