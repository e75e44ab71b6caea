"""Answers kept from earlier runs: data only, and only of the very same question to the very same solver.

An answer is found again by the hash of the question's text (`Posed.text`), the solver's name and its version. Only `proved` and
`broken` are kept, never `unknown`: what one limit did not show, another may. What takes no solver (all states of a small
instance) is kept by a digest of the code that searches, and of all that it reaches (`model/loaded_code.py`).

No file and no time is a part of a key. Every question is posed on every run, because only the terms say what is asked.

A file that is unreadable, incomplete, altered or another program's is as good as none. Whoever can write to the folder can
forge a green: `--no-cache` and `--certify` ask anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

import z3
from pydantic import TypeAdapter, ValidationError

from kvproof.model.loaded_code import NotReadableError, digest_of
from kvproof.model.questions import BROKEN, PROVED, Answer, Answers, Asker, Posed, Question, ask_z3

T = TypeVar("T")
FORMAT = "kvproof cache 2"
_ANSWERS = TypeAdapter(list[tuple[str, str, Literal["proved", "broken"], float]])
MOST_BYTES = 2**24
"""Of one answer: what is larger was not kept by this program."""


class Store:
    """A folder with one JSON file for each key. Reading and writing never fail; `problem` says why nothing was kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problem = ""

    def read(self, key: str) -> Any:
        """What was kept under the key, or None."""
        try:
            with self._path(key).open("rb") as file:
                text = file.read(MOST_BYTES + 1)
            record = json.loads(text) if len(text) <= MOST_BYTES else None
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(record, dict) or "value" not in record:
            return None
        return record["value"] if record.get("checksum") == _checksum(key, record["value"]) else None

    def write(self, key: str, value: Any) -> None:
        record = {"format": FORMAT, "key": key, "value": value, "checksum": _checksum(key, value)}
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Another run may write the same key: each writes a file of its own, the last rename wins, no reader sees half of one.
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(record, file)
                Path(name).replace(path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as error:
            self.problem = f"nothing is kept in {self.folder}: {error.strerror or error}"

    def remove(self, key: str) -> None:
        with suppress(OSError):
            self._path(key).unlink()

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.json"


class Remembering(Asker):
    """Asks Z3 what is not in the store, and keeps what it answers."""

    def __init__(self, store: Store, solver: str | None = None, ask: Callable[[Posed], Answers] = ask_z3) -> None:
        self.store = store
        self.solver = solver or f"z3 {z3.get_version_string()}"
        self.ask = ask
        self.found = 0
        self.asked = 0
        self._new: set[str] = set()

    def answers(self, question: Question) -> Answers:
        posed = question.pose()
        key = _key("answers", self.solver, posed.text)
        kept = _as_answers(self.store.read(key))
        if kept is not None:
            if key in self._new:  # two questions of this run read the same: nothing is from an earlier one
                self.asked += len(kept)
            else:
                self.found += len(kept)
            return kept
        found = self.ask(posed)
        self._new.add(key)
        self.asked += len(found)
        if all(answer.verdict in (PROVED, BROKEN) for answer in found.values()):
            self.store.write(key, [[*label, answer.verdict, answer.seconds] for label, answer in found.items()])
        return found

    def recall(self, what: str, search: Callable[[], T], kept_as: TypeAdapter[T]) -> T:
        try:
            key = search_key(what, search)
        except NotReadableError:
            return search()
        kept = self.store.read(key)
        if kept is not None:
            with suppress(LookupError, TypeError, ValueError, AttributeError, OverflowError):
                return kept_as.validate_python(kept)
        found = search()
        self.store.write(key, kept_as.dump_python(found, mode="json"))
        return found


def search_key(what: str, search: Callable[[], Any]) -> str:
    """Of a search as it is loaded now. Raises NotReadableError."""
    return _key("search", z3.get_version_string(), platform.python_version(), what, digest_of(search))


def _as_answers(kept: Any) -> Answers | None:
    """Answers as they were kept, or None when they are not what is kept here."""
    with suppress(ValidationError):
        answers = _ANSWERS.validate_python(kept)
        return {(about, text): Answer(verdict, spent) for about, text, verdict, spent in answers}
    return None


def _key(*parts: str) -> str:
    """A hash of the parts, each with its length, so that no two lists of parts read the same."""
    digest = hashlib.sha256(FORMAT.encode())
    for part in parts:
        data = part.encode()
        digest.update(f"{len(data)}:".encode() + data)
    return digest.hexdigest()


def _checksum(key: str, value: Any) -> str:
    return _key(key, json.dumps(value, sort_keys=True))
