"""Source trees in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Texts:
    """Files by their path."""

    texts: Mapping[str, str]
    name: str = "texts"

    def read(self, path: str) -> str | None:
        return self.texts.get(path)
