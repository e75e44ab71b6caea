"""A campaign: schedules by chance until the time is up, each judged; what fails is shrunk, and what is the same is counted.

Hypothesis draws. What was found in an earlier round is counted and fails no more, so that the search goes on behind it. The
search is led to what was rarely exercised: a schedule scores by the actions, branches of guards and invariants that it
exercised, each the more the fewer others did.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis.database import ExampleDatabase

from kvproof.conformance.coverage import Coverage
from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz.generate import schedules
from kvproof.conformance.fuzz.judging import NewJudging, judging_by
from kvproof.conformance.fuzz.play import Played, Trouble, play
from kvproof.conformance.fuzz.schedule import Schedule, Setting
from kvproof.conformance.fuzz.shrink import shrunk
from kvproof.conformance.fuzz.target import Target
from kvproof.conformance.replay import AUTO

ROUND, MOST_ROUNDS = 200, 1_000_003
"""Schedules of one round: each begins anew, so a search that is stuck is left. No campaign has so many rounds."""
SHRINK_SECONDS = 20.0


@dataclass
class Found:
    """One kind of trouble, with the simplest schedule that shows it."""

    number: int
    trouble: Trouble
    played: Played
    times: int = 1
    after_seconds: float = 0.0
    after_schedules: int = 0

    @property
    def schedule(self) -> Schedule:
        return self.played.schedule


@dataclass
class Campaign:
    """What was tried, and what was found."""

    target: Target
    faults: tuple[str, ...]
    pinned: Mapping[str, Setting]
    seed: int
    seconds: float
    found: dict[str, Found] = field(default_factory=dict)
    schedules: int = 0
    refused: int = 0
    """Schedules whose settings the target does not take."""
    steps: int = 0
    events: int = 0
    elapsed: float = 0.0
    coverage: Coverage = field(default_factory=Coverage)
    seen_in: Counter[str] = field(default_factory=Counter)
    """In how many schedules each action, branch and invariant was exercised."""


class _TimeUp(KeyboardInterrupt):
    """Not an Exception: Hypothesis hands this on at once."""


class _New(AssertionError):
    """A kind of trouble that was not seen before."""


Progress = Callable[[Campaign], None]


def run_campaign(
    target: Target,
    *,
    seconds: float,
    seed: int = 0,
    faults: Sequence[str] = (),
    pinned: Mapping[str, Setting] | None = None,
    is_enough: Callable[[Campaign], bool] = lambda _: False,
    database: ExampleDatabase | None = None,
    progress: Progress = lambda _: None,
    found: Callable[[Found], object] = lambda _: None,
    checker: str = AUTO,
) -> Campaign:
    """Fuzz for so many seconds, or until what is found is enough; `found` is told of each finding once it is shrunk.

    `checker`: who judges, as in `replay`.
    """
    campaign = Campaign(target, tuple(faults), dict(pinned or {}), seed, seconds)
    search = _Search(campaign, progress, found, database, judging_by(checker, seconds))
    try:
        search.play_seeds()
        while not is_enough(campaign):
            search.round()
    except _TimeUp:
        pass
    campaign.elapsed = search.elapsed
    return campaign


class _Search:
    def __init__(
        self,
        campaign: Campaign,
        progress: Progress,
        found: Callable[[Found], object],
        database: ExampleDatabase | None,
        new_judging: NewJudging,
    ) -> None:
        self.campaign = campaign
        self._new_judging = new_judging
        self._progress = progress
        self._found = found
        self._database = database
        self._begin = time.monotonic()
        self._rounds = 0
        self._known: set[str] = set()
        """What was found in earlier rounds. Hypothesis tries a failing schedule again, and it must fail again."""

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._begin

    def play_seeds(self) -> None:
        """The seeds as they are, before anything is drawn."""
        campaign = self.campaign
        for seed in campaign.target.seeds:
            settings = {**seed.settings, **campaign.pinned}
            self._try_one(seed.model_copy(update={"settings": settings, "faults": campaign.faults}))
        self._shrink_new()

    def round(self) -> None:
        """One run of Hypothesis, up to new trouble, which is then shrunk."""
        campaign = self.campaign
        test = hypothesis.given(schedules(campaign.target, campaign.pinned, campaign.faults))(self._try)
        test = hypothesis.settings(
            max_examples=ROUND,
            deadline=None,
            database=self._database,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.reuse, Phase.generate, Phase.target),
            verbosity=Verbosity.quiet,
            report_multiple_bugs=False,
        )(test)
        try:
            hypothesis.seed(campaign.seed * MOST_ROUNDS + self._rounds)(test)()
        except _New:
            pass
        finally:
            self._rounds += 1
            self._shrink_new()

    def _try(self, schedule: Schedule) -> None:
        played = self._try_one(schedule)
        if played is None:
            hypothesis.reject()
        exercised, seen_in = _exercised(played), self.campaign.seen_in
        hypothesis.target(sum(1.0 / (1 + seen_in[name]) for name in exercised), label="rarely exercised")
        seen_in.update(exercised)
        if played.trouble is not None and played.trouble.signature not in self._known:
            raise _New(played.trouble.signature)

    def _try_one(self, schedule: Schedule) -> Played | None:
        if self.elapsed >= self.campaign.seconds:
            raise _TimeUp
        played = self._play(schedule)
        if played is not None and played.trouble is not None:
            self._keep(played, played.trouble)
        return played

    def _shrink_new(self) -> None:
        """What was found for the first time is shrunk and told; from now on it is known."""
        for signature in self.campaign.found.keys() - self._known:
            self._shrink(signature)
            self._found(self.campaign.found[signature])
            self._known.add(signature)

    def _shrink(self, signature: str) -> None:
        found = self.campaign.found[signature]

        def still_fails(schedule: Schedule) -> bool:
            played = self._play(schedule)
            if played is None or played.trouble is None or played.trouble.signature != signature:
                return False
            found.trouble, found.played = played.trouble, played
            return True

        shrunk(found.schedule, still_fails, SHRINK_SECONDS)

    def _play(self, schedule: Schedule) -> Played | None:
        """None: the target does not take the settings."""
        campaign = self.campaign
        try:
            played = play(schedule, campaign.target, new_judging=self._new_judging)
        except UserError:
            campaign.refused += 1
            return None
        campaign.schedules += 1
        campaign.steps += played.steps
        campaign.events += played.seen
        campaign.coverage.add(played.coverage)
        self._progress(campaign)
        return played

    def _keep(self, played: Played, trouble: Trouble) -> None:
        """What is the same is counted, and the simplest schedule of it is kept."""
        campaign = self.campaign
        found = campaign.found.get(trouble.signature)
        if found is None:
            number = len(campaign.found) + 1
            campaign.found[trouble.signature] = Found(
                number, trouble, played, after_seconds=self.elapsed, after_schedules=campaign.schedules
            )
            return
        found.times += 1
        if played.schedule.size < found.schedule.size:
            found.trouble, found.played = trouble, played


def _exercised(played: Played) -> set[str]:
    coverage = played.coverage
    return {*coverage.actions, *coverage.branches, *coverage.invariants}
