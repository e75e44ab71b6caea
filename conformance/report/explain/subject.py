"""What is explained: a trace, or the finding of the fuzzer that holds one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz.finding_files import REPORT, SCHEDULE, TRACE


@dataclass(frozen=True)
class Subject:
    """What is explained: a trace, and the folder of the fuzzer's finding that it lies in, if it does."""

    path: Path
    finding: Path | None = None
    strict: bool = False
    profile: str | None = None

    @staticmethod
    def of(place: Path, *, strict: bool = False, profile: str | None = None) -> Subject:
        """A trace, or a folder that `kvproof fuzz` left. Raises UserError for any other folder."""
        if not place.is_dir():
            return Subject(place, None, strict, profile)
        if not (place / SCHEDULE).exists():
            inside = sorted(found.parent.name for found in place.glob(f"*/{SCHEDULE}"))
            choose = f"; it holds findings: {place / inside[0]}" if inside else ""
            raise UserError(
                f"{place} is a folder, but no finding of kvproof fuzz ({SCHEDULE} is not in it){choose}; "
                "many traces: kvproof replay"
            )
        if not (place / TRACE).exists():
            raise UserError(f"{place}: the finding has no trace: what went wrong is in {place / REPORT}")
        return Subject(place / TRACE, place, strict, profile)

    @property
    def given(self) -> Path:
        return self.finding or self.path
