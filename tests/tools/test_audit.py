"""What pip-audit says is passed on; where it says nothing, there is no verdict."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from repository import ROOT


def test_an_audit_that_cannot_ask_gives_no_verdict(tmp_path: Path) -> None:
    """No pip-audit, or no service: neither is a pass."""
    (tmp_path / "pip_audit.py").write_text("import sys; print('no service', file=sys.stderr); sys.exit(1)\n")
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "audit.py", "constraints.txt"], cwd=tmp_path, capture_output=True, text=True,
        env={"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 3 and "no verdict: no service" in done.stderr


def audited(tmp_path: Path, *packages: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """What the audit makes of an answer of pip-audit."""
    (tmp_path / "pip_audit.py").write_text(f"import json; print(json.dumps({ {'dependencies': packages}!r}))\n")
    return subprocess.run(
        [sys.executable, ROOT / "tools" / "audit.py", "x"], cwd=tmp_path, capture_output=True, text=True,
        env={"PYTHONPATH": str(tmp_path)},
    )  # fmt: skip


CLEAN = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "1", "vulns": [{"id": "X-1", "fix_versions": ["2"]}]}
SKIPPED = {"name": "c", "skip_reason": "the index does not know it"}


@pytest.mark.parametrize(("packages", "code"), [((CLEAN,), 0), ((CLEAN, BAD), 1), ((BAD, SKIPPED), 1)])
def test_what_is_known_is_said(tmp_path: Path, packages: tuple[dict[str, Any], ...], code: int) -> None:
    done = audited(tmp_path, *packages)
    assert done.returncode == code and ("X-1" in done.stdout) == bool(code)


def test_a_package_that_was_not_looked_at_is_no_pass(tmp_path: Path) -> None:
    done = audited(tmp_path, CLEAN, SKIPPED)
    assert done.returncode == 3
    assert "1 of 2 packages looked at, 0 known vulnerabilities" in done.stdout and "no verdict on: c" in done.stderr
