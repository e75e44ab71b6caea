"""A slice of a trace: what its header says of what was left out, under `extra.slice`.

A replay starts from an empty ledger, so it can only follow a trace from its first event and with every event. A slice that begins
later may carry the state of ledgers and pages there, in `checkpoint` (`slice_state.py`); then it can be replayed, too.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kvproof.spec.trace import Header

PLACE = "slice"


class Slice(BaseModel):
    """The events `first` to `last` of a trace, both included; with `session` or `page` only some of them.

    `last` is null where the slice continues to the end of its trace.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    first: int = Field(ge=0)
    last: int | None = None
    session: str | None = None
    page: int | None = None
    checkpoint: dict[str, Any] | None = None

    @classmethod
    def of(cls, header: Header) -> Slice | None:
        """What a header says; None if the trace is whole. Raises ValueError with one sentence if it says it wrongly."""
        if PLACE not in header.extra:
            return None
        try:
            return cls.model_validate(header.extra[PLACE])
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise ValueError(
                f"field {'.'.join(map(str, ('extra', PLACE, *first['loc'])))!r}: {first['msg']}"
            ) from error

    def within(self, whole: Slice | None) -> Slice:
        """This slice of what is a slice itself. Raises ValueError with one sentence if the two keep other things."""
        if whole is None:
            return self
        kept: dict[str, Any] = {}
        for name in ("session", "page"):
            ours, theirs = getattr(self, name), getattr(whole, name)
            if None not in (ours, theirs) and ours != theirs:
                raise ValueError(f"is a slice of {name} {theirs} already: nothing of {name} {ours} is in it")
            kept[name] = theirs if ours is None else ours
        ends = [last for last in (self.last, whole.last) if last is not None]
        return Slice(first=max(self.first, whole.first), last=min(ends, default=None), **kept)

    def added_to(self, header: Header) -> Header:
        return header.model_copy(update={"extra": {**header.extra, PLACE: self.model_dump(exclude_none=True)}})

    @property
    def has_gaps(self) -> bool:
        return self.session is not None or self.page is not None

    @property
    def starts_from_nothing(self) -> bool:
        """A beginning of a trace can be replayed: nothing happened before it."""
        return self.first == 0 and not self.has_gaps

    @property
    def can_be_replayed(self) -> bool:
        return self.starts_from_nothing or (self.checkpoint is not None and not self.has_gaps)

    @property
    def why_not_replayed(self) -> str:
        """Why a replay cannot follow it, as a sentence."""
        kept = [
            *([f"session {self.session}"] if self.session is not None else []),
            *([f"page {self.page}"] if self.page is not None else []),
        ]
        only = f", only those of {' and '.join(kept)}" if kept else ""
        last = "the last" if self.last is None else self.last
        lacking = (
            "with events left out" if self.has_gaps else "without the state before it (kvproof slice --with-state)"
        )
        return f"a slice, events {self.first} to {last}{only}: {lacking} it cannot be replayed"
