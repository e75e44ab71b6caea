"""A schedule: the settings of a target, and what its users do, in order.

Acts name sessions and requests by number, counted round: "the session number 3 of those that are open". So whatever is
left out of a schedule, what remains still says something, and a schedule can be shrunk act by act.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kvproof.conformance.errors import UserError, at
from kvproof.conformance.traces.data_file import SMALL, read_text

Setting = bool | int | float | str | None
Number = Annotated[int, Field(ge=0, le=1 << 20)]
MOST_STEPS_AT_ONCE = 1000
MOST_ACTS = 100_000

Do = Literal["open", "turn", "send", "step", "launch", "abort", "retract", "close"]


class Act(BaseModel):
    """One thing that users do, or that time does. Lengths are in tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    do: Do
    who: Number = 0
    """The session (turn, close) or request (abort, retract) that it is about, counted round those that there are."""
    new_tokens: Annotated[int, Field(ge=1, le=1 << 20)] = 1
    max_new_tokens: Annotated[int, Field(ge=1, le=1 << 20)] = 1
    shared: Number = 0
    """Leading tokens that its input has in common with other inputs."""
    logprob: bool = False
    priority: Annotated[int, Field(ge=0, le=100)] = 0
    times: Annotated[int, Field(ge=1, le=MOST_STEPS_AT_ONCE)] = 1
    """Steps."""

    def __str__(self) -> str:
        said = self.model_dump(exclude_defaults=True)
        said.pop("do", None)
        return " ".join([self.do, *(f"{name}={value}" for name, value in said.items())])


class Schedule(BaseModel):
    """What was, or is to be, played on a target."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kvproof_schedule: Literal[1] = 1
    target: str
    faults: tuple[str, ...] = ()
    profile: str | None = None
    """Whose rules it is judged by: those of a profile, of the target's own (`auto`), or, with none, the model's."""
    settings: dict[str, Setting] = {}
    acts: Annotated[tuple[Act, ...], Field(max_length=MOST_ACTS)] = ()

    @property
    def size(self) -> tuple[int, int, int, str]:
        """Which of two schedules is the simpler one: fewer acts, fewer steps, smaller numbers."""
        steps = sum(act.times for act in self.acts if act.do == "step")
        tokens = sum(act.new_tokens + act.max_new_tokens for act in self.acts)
        return len(self.acts), steps, tokens, self.as_json()

    def as_json(self) -> str:
        return self.model_dump_json(exclude_defaults=True)

    def save(self, path: Path) -> None:
        """One act a line: what changed between two schedules is seen in a diff."""
        acts = ",\n".join(f"    {act.model_dump_json(exclude_defaults=True)}" for act in self.acts)
        head = self.model_dump_json(exclude={"acts"})
        path.write_text(f'{head[:-1]},"acts":[\n{acts}\n]}}\n', encoding="utf-8")

    @staticmethod
    def load(path: Path) -> Schedule:
        """Raises UserError if it is no schedule."""
        try:
            return Schedule.model_validate_json(read_text(path, SMALL))
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror or error}") from error
        except (ValidationError, UnicodeDecodeError) as error:
            first = str(error).splitlines()
            raise UserError(f"{at(path)}: no schedule: {' '.join(' '.join(first[:3]).split())}") from error
