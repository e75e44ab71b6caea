"""Files that are refused before the work if they cannot be written, and appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kvproof.conformance.errors import UserError


def require_parent(path: Path) -> None:
    """The folder of a file may be missing, as `out/` at first; where more is missing the name is mistyped. Raises UserError."""
    folder = path.parent
    if not folder.parent.exists():
        raise UserError(f"cannot write {path}: there is no folder {folder.parent}; correct it, or: mkdir -p {folder}")


def make_parent(path: Path) -> None:
    """Raises UserError as `require_parent` does, and OSError."""
    require_parent(path)
    path.parent.mkdir(exist_ok=True)


def make_folder(path: Path) -> None:
    """A folder that is written into, and the one that it stands in. Raises as `make_parent` does."""
    make_parent(path)
    path.mkdir(exist_ok=True)


def require_writable_file(path: Path) -> None:
    """Before the work, not after it. Leaves nothing behind. Raises UserError."""
    with writing(path), leaving_no_empty(path.parent):
        make_parent(path)
        was_there = path.exists()
        with path.open("a"):
            pass
        if not was_there:
            path.unlink()


@contextmanager
def leaving_no_empty(folder: Path) -> Iterator[None]:
    """A folder that is made inside, and is still empty, is removed."""
    was_there = folder.exists()
    try:
        yield
    finally:
        if not was_there:
            with suppress(OSError):  # it is not empty
                folder.rmdir()


def require_other_file(path: Path, read: Path) -> None:
    """Raises UserError where the file that is to be written is the one that is read."""
    if path.exists() and read.exists() and path.samefile(read):
        raise UserError(f"{path}: is the trace that is read; give another name to write to")


def write_whole(path: Path, parts: Iterable[str]) -> None:
    """A reader never sees half of it. What is no file of its own (/dev/stdout) is written into. Raises UserError."""
    with writing(path):
        if path.exists() and not path.is_file():
            with path.open("w", encoding="utf-8") as file:
                file.writelines(parts)
            return
        make_parent(path)
        partial = path.with_name(f".partial-{os.getpid()}-{path.name}")
        try:
            with partial.open("w", encoding="utf-8") as file:
                file.writelines(parts)
            partial.replace(path)
        finally:
            with suppress(OSError):
                partial.unlink()


@contextmanager
def writing(path: Path | None) -> Iterator[None]:
    """Inside, a file that cannot be written is the user's to put right."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
