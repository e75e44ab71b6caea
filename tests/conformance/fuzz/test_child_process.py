"""A process of its own is ended with all that it made."""

from __future__ import annotations

import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from kvproof.conformance.fuzz.child_process import Child


def _leaves_files(connection: Connection) -> None:
    with tempfile.NamedTemporaryFile(delete=False) as file:
        connection.send(file.name)
    connection.recv()


def test_temporary_files_of_a_process_that_is_killed_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    child = Child("kvproof-test", _leaves_files)
    left = Path(child.connection.recv())
    assert left.exists() and left.is_relative_to(tmp_path)
    child.end()
    assert list(tmp_path.iterdir()) == []
