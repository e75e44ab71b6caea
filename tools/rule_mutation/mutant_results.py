"""Verdicts on mutants as they are kept between runs, and the pages that they are shown on. Of any mutation test."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Result = dict[str, Any]


@dataclass(frozen=True)
class Told:
    """A page, and why the command fails."""

    text: str
    complaints: list[str]


def digest_of_modules(packages: Sequence[str]) -> str:
    """Of the sources of all modules of these packages that are loaded."""
    digest = hashlib.sha256()
    for name in sorted(sys.modules):
        if any(name == package or name.startswith(f"{package}.") for package in packages):
            digest.update(Path(str(sys.modules[name].__file__)).read_bytes())
    return digest.hexdigest()[:16]


def load(path: Path, digest: str) -> dict[str, Result]:
    """Results of an earlier run over the same sources."""
    return _kept(path, digest)


def kept(path: Path) -> dict[str, Result]:
    """Results of whatever run wrote them."""
    return _kept(path, None)


def _kept(path: Path, digest: str | None) -> dict[str, Result]:
    if not path.exists():
        return {}
    said = json.loads(path.read_text(encoding="utf-8"))
    return dict(said["results"]) if digest in (None, said.get("sources")) else {}


def save(path: Path, digest: str, results: dict[str, Result]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"sources": digest, "results": results}, indent=1, ensure_ascii=False)
    draft = path.with_suffix(".tmp")
    draft.write_text(text + "\n", encoding="utf-8")
    draft.replace(path)


def begin_of(part: str) -> str:
    """The line that a generated part of a page begins behind."""
    return f"<!-- {part}:begin -->"


def write_part(page: Path, part: str, text: str) -> None:
    """Write the generated part of a page anew, between its markers."""
    begin, end = begin_of(part), f"<!-- {part}:end -->"
    before, rest = page.read_text(encoding="utf-8").split(begin)
    page.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}", encoding="utf-8")


def listed(names: Sequence[str]) -> str:
    """Names of mutants in one cell of a table."""
    return "; ".join(f"`{name}`".replace("|", "\\|") for name in names)
