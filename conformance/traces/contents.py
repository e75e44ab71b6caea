"""What a trace holds before its end record: how many events of each action, and a SHA-256 of the bytes.

A writer states both in the end record, and a reader compares: lines that were left out, added or changed show, in lines and in
columns. The bytes are those of the file, of a packed one those that were packed. Whoever forges a trace can compute a new
digest, as it is no signature; what it shows is that the file is as its writer left it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import IO

from kvproof.spec.trace import End

_PART = 2**22


class Contents:
    """Counts and hashes a trace as it is written or read. The end record is none of it."""

    def __init__(self) -> None:
        self.actions: Counter[str] = Counter()
        self._hash = hashlib.sha256()
        self.add = self._hash.update
        """Takes the next bytes."""

    def add_from(self, file: IO[bytes], end: int) -> None:
        """Takes the bytes of a file up to this place, where the file stands then."""
        left = end - file.seek(0)
        while left > 0 and (part := file.read(min(_PART, left))):
            self.add(part)
            left -= len(part)

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def wrong_actions(self, end: End) -> str | None:
        """The actions of which the end record counts another number, as a sentence; None: there is none."""
        stated = end.actions
        if stated is None or stated == self.actions:
            return None
        wrong = [name for name in sorted({*stated, *self.actions}) if stated.get(name, 0) != self.actions[name]]
        counts = ", ".join(f"{stated.get(name, 0)} {name} (the file holds {self.actions[name]})" for name in wrong)
        return f"the end record counts {counts}: lines were left out or changed"

    def wrong_sha256(self, end: End) -> str | None:
        """That the end record states another digest, as a sentence; None: it states this one, or none."""
        if end.sha256 is None or end.sha256 == self.sha256:
            return None
        return f"sha256 {self.sha256} up to the end record, which states {end.sha256}: lines were left out or changed"


def counted(actions: Mapping[str, int]) -> dict[str, int]:
    """As an end record states it."""
    return {name: actions[name] for name in sorted(actions) if actions[name]}
