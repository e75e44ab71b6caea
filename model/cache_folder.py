"""Where kvproof keeps what it need not work out twice: answers of solvers, compiled rules."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

FOLDER_VARIABLE = "KVPROOF_CACHE"


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """KVPROOF_CACHE, else `kvproof` in the user's cache folder (XDG_CACHE_HOME, ~/.cache)."""
    if given := environment.get(FOLDER_VARIABLE):
        return Path(given).expanduser()
    base = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "kvproof"


def require_ours(path: Path) -> None:
    """Of what is loaded and run unseen. Raises PermissionError for what belongs to another user, or where everybody may write."""
    if not hasattr(os, "geteuid") or not path.exists():
        return
    about = path.stat()
    if about.st_uid not in (0, os.geteuid()) or about.st_mode & stat.S_IWOTH:
        raise PermissionError(f"{path} is not only ours to write")
