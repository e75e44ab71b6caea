"""A trace to be given away: what clients called their sessions and requests becomes salted hashes.

Names are the only words in a trace that are a client's. The salt is drawn anew for each trace and kept nowhere, so that nobody
can try names until one fits, nor find the same client in two traces. Within the trace the same name stays the same.
"""

from __future__ import annotations

import secrets
from hashlib import blake2b

from kvproof.conformance.errors import UserError, at
from kvproof.conformance.traces.json_lines import TraceReader
from kvproof.conformance.traces.slices import PLACE
from kvproof.spec.trace import FINISHED, STOPPED, Event, Header

HASH_BYTES = 8
OTHERWISE = "ended early"


class HashedNames:
    """The hashes of one trace."""

    def __init__(self, salt: bytes | None = None) -> None:
        self._salt = secrets.token_bytes(32) if salt is None else salt

    def header_of(self, reader: TraceReader) -> Header:
        """What a producer wrote freely (`extra`) is left out, but for what a slice says of its place.

        Raises UserError for a slice that carries a state, which is full of names.
        """
        header, part = reader.header, reader.slice
        if part is not None and part.checkpoint is not None:
            raise UserError(
                f"{at(reader.path, 1)}: the state that this slice carries names sessions: hash the whole trace, then cut"
            )
        kept = {} if part is None else {PLACE: {**header.extra[PLACE], **self._of("session", part.session)}}
        return header.model_copy(update={"extra": kept})

    def event(self, event: Event) -> Event:
        return event.model_copy(update={**self._of("session", event.session), **self._of("turn", event.turn)})

    @staticmethod
    def reason(reason: str) -> str:
        """An end may quote what the server raised."""
        return reason if reason in (FINISHED, STOPPED) else OTHERWISE

    def _of(self, field: str, name: str | None) -> dict[str, str]:
        if name is None:
            return {}
        return {field: f"{field[0]}-{blake2b(name.encode(), key=self._salt, digest_size=HASH_BYTES).hexdigest()}"}
