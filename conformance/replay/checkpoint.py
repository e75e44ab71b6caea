"""Checkpoints of a replay: its whole state in a JSON file, so that it continues where it stopped.

A checkpoint holds data only, so a stranger's runs no code here. It belongs to one trace: the bytes that were read of it are
hashed, and a trace that only grew since may go on. A checksum over the checkpoint finds damage; nobody is kept from writing
one that lies, so a verdict that began with a checkpoint is as good as whoever made that.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.replayer import FIRST_LINE, Replayer
from kvproof.conformance.replay.serialization import REPORT, restore_state, state_as_data
from kvproof.conformance.traces.data_file import LARGE, WRONG_SHAPE, count, parsed, read_text, wrong_shape
from kvproof.conformance.traces.json_lines import Place, TraceReader
from kvproof.conformance.traces.records import line_of
from kvproof.spec import SPEC_VERSION

FORMAT = 4
EVERY_SECONDS = 30.0
_PART = 2**22


class Checkpoints:
    """Writes the checkpoints of one replay, and reads the one that it continues from."""

    def __init__(self, path: Path, *, every: float = EVERY_SECONDS) -> None:
        self.path = path
        self.written = 0
        self._every = every
        self._next = time.monotonic() + every
        self._stopped = threading.Event()
        self._hash, self._hashed = hashlib.sha256(), 0

    def write_if_due(
        self, replayer: Replayer, reader: TraceReader, strict: bool, bring_up_to_date: Callable[[], None]
    ) -> None:
        """Between two events: write if it is time, or if the run is to stop."""
        if self._stopped.is_set() or time.monotonic() >= self._next:
            bring_up_to_date()
            self.write(replayer, reader, strict)

    def write(self, replayer: Replayer, reader: TraceReader, strict: bool) -> None:
        """Write the state as it is, under its name only when it is whole."""
        data = {
            "kvproof_checkpoint": FORMAT,
            "spec": SPEC_VERSION,
            "strict": strict,
            "profile": replayer.report.profile,
            "header": _digest(line_of(reader.header)),
            "read": self._bytes_read(reader),
            "place": None if reader.place is None else list(reader.place),
            "report": REPORT.dump_python(replayer.report, mode="json"),
            "state": state_as_data(replayer),
        }
        text = json.dumps({**data, "sha256": _digest(_canonical(data))})
        partial = self.path.with_name(f".partial-{os.getpid()}-{self.path.name}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("w", encoding="utf-8") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self.path)
        except OSError as error:
            raise UserError(f"cannot write the checkpoint {self.path}: {error.strerror or error}") from error
        self.written += 1
        self._next = time.monotonic() + self._every
        if self._stopped.is_set():
            raise KeyboardInterrupt

    def resume(self, replayer: Replayer, reader: TraceReader, strict: bool) -> None:
        """Put a fresh replayer and its reader to where the checkpoint was written."""
        data = self._read()
        try:
            self._require_same(data, replayer, reader, strict)
            self._restore(data, replayer, reader)
        except WRONG_SHAPE as error:
            raise self._refused(f"not a checkpoint as kvproof writes it ({wrong_shape(error)})") from error

    def _require_same(self, data: dict[str, Any], replayer: Replayer, reader: TraceReader, strict: bool) -> None:
        """Of the same rules, and of a trace that begins as it did. Raises UserError."""
        if data["spec"] != SPEC_VERSION:
            raise self._refused(
                f"it was written for specification {data['spec']!r:.60}; this kvproof checks {SPEC_VERSION!r}"
            )
        if data["strict"] is not strict:
            raise self._refused(
                f"it was written {'with' if data['strict'] else 'without'} --strict: go on in the same way"
            )
        if data["profile"] != replayer.report.profile:
            both = (data["profile"], replayer.report.profile)
            there, here = (f"{' '.join(str(name or 'the model').split()):.60}" for name in both)
            raise self._refused(f"it was written by the rules of {there}, not of {here}: go on with the same --profile")
        if data["header"] != _digest(line_of(reader.header)):
            raise self._refused(f"it is of another trace than {reader.path}: the headers differ")
        self._hash_up_to(reader.path, count(data["read"]["bytes"]))
        if self._hash.hexdigest() != data["read"]["sha256"]:
            raise self._refused(f"{reader.path} is another file than when it was written, or it was changed")

    def _restore(self, data: dict[str, Any], replayer: Replayer, reader: TraceReader) -> None:
        report, restored = replayer.report, REPORT.validate_python(data["report"])
        report.findings = [dataclasses.replace(f, path=reader.path) for f in restored.findings]
        report.followed, report.events, report.pages_moved = restored.followed, restored.events, restored.pages_moved
        vars(report.coverage).update(vars(restored.coverage))
        restore_state(replayer, data["state"])
        if data["place"] is not None:
            place = Place(*map(count, data["place"]))
            if place.line < FIRST_LINE:
                raise ValueError(f"line {place.line} is no event's")
            reader.begin_at(place)

    @contextmanager
    def heeding_ctrl_c(self) -> Iterator[None]:
        """Within it a Ctrl-C waits for the end of the event; a second one does not."""
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or before is not signal.default_int_handler:
            yield
            return

        def stop(number: int, frame: FrameType | None) -> None:
            signal.signal(signal.SIGINT, before)
            self._stopped.set()

        signal.signal(signal.SIGINT, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _read(self) -> dict[str, Any]:
        try:
            data = parsed(read_text(self.path, LARGE))
        except OSError as error:
            raise self._refused(f"{error.strerror or error}; leave --resume out to begin anew") from error
        except ValueError as error:
            raise self._refused(f"not JSON: {error}") from error
        if not isinstance(data, dict) or data.get("kvproof_checkpoint") != FORMAT:
            raise self._refused(f"not a checkpoint of format {FORMAT}, which this kvproof reads")
        digest = data.pop("sha256", None)
        if digest != _digest(_canonical(data)):
            raise self._refused("wrong checksum: the file is damaged")
        return data

    def _refused(self, why: str) -> UserError:
        return UserError(f"cannot go on from the checkpoint {self.path}: {why}")

    def _bytes_read(self, reader: TraceReader) -> dict[str, Any]:
        """How far the file was read, and its hash up to there; of a file that is packed as a whole, all of it."""
        self._hash_up_to(reader.path, reader.position or reader.path.stat().st_size)
        return {"bytes": self._hashed, "sha256": self._hash.hexdigest()}

    def _hash_up_to(self, path: Path, end: int) -> None:
        """Only what was not hashed before is read again."""
        with path.open("rb") as file:
            file.seek(self._hashed)
            while self._hashed < end and (part := file.read(min(_PART, end - self._hashed))):
                self._hash.update(part)
                self._hashed += len(part)


def _canonical(data: dict[str, Any]) -> bytes:
    return json.dumps(data, sort_keys=True).encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
