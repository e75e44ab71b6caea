"""Where kvproof keeps what it need not work out twice: answers of solvers, compiled rules."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

FOLDER_VARIABLE = "KVPROOF_CACHE"


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """KVPROOF_CACHE, else `kvproof` in the user's cache folder (XDG_CACHE_HOME, ~/.cache)."""
    if given := environment.get(FOLDER_VARIABLE):
        return Path(given).expanduser()
    base = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "kvproof"
