"""The processes of a Ray cluster that a test made on this machine."""

from __future__ import annotations

import os
from pathlib import Path


def workers_of(task: str) -> list[int]:
    """The processes below this one that do such a task now; Ray names them after it."""
    parents, named = {}, []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
            if f"ray::{task}".encode() in (stat.parent / "cmdline").read_bytes():
                named.append(int(stat.parent.name))
        except OSError:  # it ended meanwhile
            continue

    def is_below(pid: int) -> bool:
        while pid in parents and pid != os.getpid():
            pid = parents[pid]
        return pid == os.getpid()

    return [pid for pid in named if is_below(pid)]
