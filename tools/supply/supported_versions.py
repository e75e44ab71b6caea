"""Which versions of Python, z3-solver and torch kvproof works with: each that can be had here is installed and tested.

    python tools/supply/supported_versions.py [--only 3.13] [--tests tests/spec ...]

Environments in .venv-versions/, one after the other, each removed once it was used; the table in
benchmarks/results/versions.md. An interpreter is looked for in KVPROOF_PYTHONS (paths,
separated by colons), below ~/.pyenv and on PATH. Nothing is downloaded but wheels of the package index, and no torch with CUDA.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venv-versions"
PAGE = ROOT / "benchmarks" / "results" / "versions.md"
KEPT = FOLDER / "kept.json"

PYTHONS = ("3.10", "3.11", "3.12", "3.13")
Z3_MINORS = 3
TORCHES = {
    "2.6 to 2.12, 2.14, 2.15": "the index has them with CUDA only, several gigabytes each: not installed",
}
EXTRAS = "fuzz,scale,watch,certify"
TOOLS = ("pytest", "pytest-xdist", "mypy", "jsonschema", "lxml", "junitparser", "sarif-pydantic", "pyyaml")
SOLVER_TESTS = (
    "tests/spec",
    "tests/model/test_tracing.py",
    "tests/model/test_page_lemmas.py",
    "tests/model/test_questions.py",
)
TESTS = (
    *SOLVER_TESTS,
    *(f"tests/conformance/traces/test_{name}.py" for name in ("json_lines", "columnar", "slicing", "hashed_names")),
    "tests/conformance/traces/test_untrusted_files.py",
    *(f"tests/conformance/replay/test_{name}.py" for name in ("replay", "checkpoint")),
    "tests/conformance/compiled/test_checker.py",
    "tests/conformance/adapters/test_workload.py",
    "tests/test_golden.py",
    "tests/conformance/report/formats/test_reports.py",
)
MARKS = "not slow and not ray and not browser and not sglang and not sglang_full and not sglang_jax"


ASK_VERSIONS = """
import platform
from importlib.metadata import version
from importlib.util import find_spec
names = ["z3-solver", "pydantic", "hypothesis", *(n for n in ("numpy", "numba", "pyarrow") if find_spec(n))]
print(f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in names), sep=", ")
"""
PROVES = "--prove"
MOST_SECONDS = 1800.0
"""For the tests of one environment."""


@dataclass(frozen=True)
class Row:
    """What one environment came to. `proof`: what `kvproof prove --no-cache` exits with."""

    what: str
    versions: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    proof: int | None = None
    seconds: float = 0.0
    why_not: str = ""

    def line(self) -> str:
        if self.why_not:
            return f"| {self.what} | not run | {self.why_not} | | |"
        verdict = "passes" if not self.failed and self.proof in (0, None) and self.passed else "**fails**"
        proof = {0: "PROVED", None: "not run"}.get(self.proof, f"exit code {self.proof}")
        tests = f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"
        return f"| {self.what} | {verdict} | {tests} | {proof} | {self.versions} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", help="of the first column: 3.13, z3 5.3")
    parser.add_argument("--tests", nargs="+", default=TESTS)
    parser.add_argument(PROVES, action="store_true", help="prove all rules anew as well: minutes for each")
    parser.add_argument("--fresh", action="store_true", help="forget what was run before")
    given = parser.parse_args()
    FOLDER.mkdir(exist_ok=True)
    rows = {} if given.fresh or not KEPT.exists() else {r["what"]: Row(**r) for r in json.loads(KEPT.read_text())}
    for what, run in jobs(tuple(given.tests)):
        if given.only and not any(name in what for name in given.only):
            continue
        print(f"== {what}", flush=True)
        rows[what] = run()
        print(rows[what].line(), flush=True)
        KEPT.write_text(json.dumps([asdict(row) for row in rows.values()]))
        PAGE.write_text(page(rows), encoding="utf-8")
    return 1 if any(row.failed or row.proof not in (0, None) for row in rows.values()) else 0


def jobs(tests: tuple[str, ...]) -> Iterator[tuple[str, Callable[[], Row]]]:
    for version in PYTHONS:
        what, python = f"Python {version}", python_of(version)
        if python is None:
            yield what, partial(Row, what, "", why_not="no such interpreter here")
        else:
            yield what, partial(tried, what, python, [f".[{EXTRAS}]"], tests)
    for version in last_minors("z3-solver"):
        what = f"z3-solver {version}"
        yield what, partial(tried, what, sys.executable, [".[fuzz]", f"z3-solver=={version}"], SOLVER_TESTS)


def python_of(version: str) -> str | None:
    """An interpreter that says itself that it is of this version."""
    given = [Path(p) for p in os.environ.get("KVPROOF_PYTHONS", "").split(":") if p]
    on_path = [Path(found)] if (found := shutil.which(f"python{version}")) else []
    below = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for python in (*given, *below, *on_path):
        said = subprocess.run(
            [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True
        )
        if said.stdout.strip() == version:
            return str(python)
    return None


def last_minors(package: str) -> list[str]:
    """The newest release of each of the last minor versions, newest first, as the index has them."""
    said = subprocess.run([sys.executable, "-m", "pip", "index", "versions", package], capture_output=True, text=True)
    line = next((line for line in said.stdout.splitlines() if line.startswith("Available versions:")), "")
    newest: dict[str, str] = {}
    for version in line.removeprefix("Available versions:").replace(" ", "").split(","):
        newest.setdefault(".".join(version.split(".")[:2]), version)
    return list(newest.values())[:Z3_MINORS]


def tried(what: str, python: str, packages: list[str], tests: tuple[str, ...]) -> Row:
    """Install, prove and test, in an environment of its own that is removed then."""
    place, began = FOLDER / what.replace(" ", "-"), time.monotonic()
    shutil.rmtree(place, ignore_errors=True)
    try:
        run(python, "-m", "venv", place)
        own = place / "bin" / "python"
        pip = (own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(*pip, "setuptools", "wheel")
        run(*pip, "--no-build-isolation", "-e", *packages, *TOOLS)
        return measured(what, own, place, tests, began)
    except subprocess.CalledProcessError as error:
        why = (error.stderr or error.stdout or "").strip().splitlines()[-1:] or ["no reason given"]
        return Row(what, "", why_not=f"cannot be installed: {why[0][:200]}")
    finally:
        shutil.rmtree(place, ignore_errors=True)


def measured(what: str, own: Path, place: Path, tests: tuple[str, ...], began: float) -> Row:
    said = run(own, "-c", ASK_VERSIONS).strip()
    proof = None
    if PROVES in sys.argv:
        proof = subprocess.run([own, "-m", "kvproof", "prove", "--no-cache", "--quiet"], cwd=ROOT).returncode
    report = place / "report.xml"
    options = ("-n", "0", "-p", "no:cacheprovider", "--continue-on-collection-errors", f"--junit-xml={report}")
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [own, "-m", "pytest", *options, "-m", MARKS, *tests]
    subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, timeout=MOST_SECONDS)
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    count = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    bad = count["failures"] + count["errors"]
    for case in suite.iter("testcase"):
        for wrong in (*case.findall("failure"), *case.findall("error")):
            print(f"   {case.get('classname')}::{case.get('name')}: {wrong.get('message', '')[:200]}", flush=True)
    passed = count["tests"] - bad - count["skipped"]
    return Row(what, said, passed, bad, count["skipped"], proof, round(time.monotonic() - began, 1))


def run(*command: object) -> str:
    """Its output. Raises CalledProcessError."""
    return subprocess.run([str(c) for c in command], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def page(rows: dict[str, Row]) -> str:
    lines = [
        "# Versions",
        "",
        "Written by `make test-versions`: what could be had on one machine was installed and tested; what could not is named,",
        f"with the reason. {platform.system()} {platform.machine()}, {os.cpu_count()} cores. The newest packages that fit, not",
        "those of `constraints.txt`.",
        "",
        "| What | | Tests | `kvproof prove --no-cache` | With |",
        "|---|---|---|---|---|",
        *(row.line() for row in rows.values()),
        f"| torch {torch_here()} | what `make test` runs with | CPU build, Python {platform.python_version()} | | |",
        *(f"| torch {versions} | not run | {why} | | |" for versions, why in TORCHES.items()),
        "",
        "The tests of a Python version are those of rules, solver, traces, compiled checker, kept traces of real SGLang and",
        "reports, without torch, which the index has as a CPU build for one Python only. Those of a solver are of rules,",
        "terms and page lemmas. Besides, ruff reads all code as Python 3.10 (`make lint`).",
    ]
    return "\n".join(lines) + "\n"


def torch_here() -> str:
    from importlib.metadata import version

    return version("torch")


if __name__ == "__main__":
    sys.exit(main())
