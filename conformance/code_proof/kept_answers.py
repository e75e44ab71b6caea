"""Answers of earlier runs about the functions of a tree, each found again by the text of what it was read from.

For each function there is one small list: of every tree that was asked about, the digests of the modules that were read. The
answer itself is in a file of its own, so that those of forty trees are not read for the one that is wanted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import z3
from pydantic import TypeAdapter, ValidationError

import kvproof.conformance.code_proof
import kvproof.model
import kvproof.spec
from kvproof.conformance.code_proof import engines
from kvproof.conformance.code_proof.findings import Finding
from kvproof.model.cache import Store
from kvproof.model.code.errors import NotUnderstoodError
from kvproof.model.code.rests_on import Read
from kvproof.model.code.source import Sources
from kvproof.spec.profiles import Profile

UNLIKE_ANY = "a module that cannot be read"
"""In place of a digest, which it never equals."""
MOST_TREES = 40
"""Trees whose answers for one function are kept."""
MOST_LIKE = 2
"""Trees that are looked at where none is the same: those in which the fewest modules are others."""

Texts = dict[str, str | None]
"""The digest of each module that was read; None of one that the tree did not have."""
_TREES = TypeAdapter(list[Texts])


@dataclass(frozen=True)
class Answer:
    """What was found out about a function, and what was read for it."""

    finding: Finding
    read: dict[str, Read | None]


_ANSWER = TypeAdapter(Answer)


class KeptAnswers:
    """`store`: None keeps nothing and finds nothing. Here no code is parsed: it may be hostile."""

    def __init__(self, store: Store | None, sources: Sources, profile: Profile | None, runs: bool) -> None:
        self._store, self._sources = store, sources
        asked = "code" if runs else "code without runs"
        self._asked = [asked, own_sources(), profile.name if profile is not None else ""] if store is not None else []
        self._digests: Texts = {}
        self._trees: dict[str, list[Texts]] = {}

    def of_this_tree(self, name: str) -> Finding | None:
        """What was found out of the very modules that the tree has now."""
        same = next((texts for texts in self._trees_of(name) if not self._others(texts)), None)
        answer = self._answer(name, same) if same is not None else None
        return answer.finding if answer is not None else None

    def of_trees_like_it(self, name: str) -> list[Answer]:
        nearest = sorted(self._trees_of(name), key=self._others)[:MOST_LIKE]
        return [answer for texts in nearest if (answer := self._answer(name, texts)) is not None]

    def keep(self, name: str, answer: Answer) -> None:
        if self._store is None:
            return
        texts: Texts = {module: read.text if read is not None else None for module, read in answer.read.items()}
        self._store.write(self._key(name, texts), _ANSWER.dump_python(answer, mode="json"))
        trees = [texts, *(other for other in self._trees_of(name) if other != texts)]
        for dropped in trees[MOST_TREES:]:
            self._store.remove(self._key(name, dropped))
        self._trees[name] = trees[:MOST_TREES]
        self._store.write(self._key(name), self._trees[name])

    def _trees_of(self, name: str) -> list[Texts]:
        if name not in self._trees:
            self._trees[name] = _as_kept(_TREES, self._read(self._key(name))) or []
        return self._trees[name]

    def _answer(self, name: str, texts: Texts) -> Answer | None:
        answer: Answer | None = _as_kept(_ANSWER, self._read(self._key(name, texts)))
        return answer

    def _read(self, key: str) -> Any:
        return self._store.read(key) if self._store is not None else None

    def _others(self, texts: Texts) -> int:
        """How many of the modules are others in this tree."""
        return sum(self._digest(module) != text for module, text in texts.items())

    def _digest(self, module: str) -> str | None:
        if module not in self._digests:
            try:
                found = self._sources.module(module)
                self._digests[module] = found.digest if found is not None else None
            except NotUnderstoodError:
                self._digests[module] = UNLIKE_ANY
        return self._digests[module]

    def _key(self, name: str, texts: Mapping[str, str | None] | None = None) -> str:
        parts = [*self._asked, name, "" if texts is None else json.dumps(texts, sort_keys=True)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _as_kept(kind: TypeAdapter[Any], kept: Any) -> Any:
    """None where it is not what is kept here."""
    try:
        return kind.validate_python(kept)
    except ValidationError:
        return None


def own_sources() -> str:
    """Hash of all of kvproof that a finding rests on."""
    packages = (kvproof.spec, kvproof.model, *engines.SOURCES, kvproof.conformance.code_proof)
    digest = hashlib.sha256(z3.get_version_string().encode())
    for package in packages:
        folder = Path(package.__path__[0])
        for file in sorted(folder.rglob("*.py")):
            digest.update(f"{file.relative_to(folder)}\n{file.read_text(encoding='utf-8')}\n".encode())
    return digest.hexdigest()
