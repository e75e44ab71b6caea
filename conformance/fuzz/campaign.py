"""A campaign: schedules by chance until the time is up, each judged; what fails is shrunk, and what is the same is counted.

Hypothesis draws. What was found in an earlier round is counted and fails no more, so that the search continues past it. The
search is led to what was rarely exercised: a schedule scores by the actions, branches of guards and invariants that it
exercised and the abstract states that it saw, each the more the fewer others did.

A campaign can be stopped at any time and go on later (`campaign_state.py`), and several jobs can search together (`jobs.py`).
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis.database import ExampleDatabase

from kvproof.conformance.errors import UserError
from kvproof.conformance.fuzz.abstract_states import PREFIX
from kvproof.conformance.fuzz.generate import schedules
from kvproof.conformance.fuzz.isolation import Player
from kvproof.conformance.fuzz.play import EXIT, HANG, STEP_SECONDS, Played, Trouble
from kvproof.conformance.fuzz.saved_play import FoundPlay
from kvproof.conformance.fuzz.schedule import Schedule, Setting
from kvproof.conformance.fuzz.shrink import shrunk
from kvproof.conformance.fuzz.target import Target
from kvproof.conformance.replay.coverage import Coverage
from kvproof.conformance.replay.kept_types import Count, Seconds

ROUND, MOST_ROUNDS = 200, 1_000_003
"""Schedules of one round: each begins anew, so a search that is stuck is left. No campaign has so many rounds."""
MOST_SEEDS = 2**64
"""Beyond every seed of a round: so those of two jobs never meet."""
SHRINK_SECONDS = 20.0
SLOW = (HANG, EXIT)
"""Trouble that takes long to see, or leaves no trace unless that is asked for."""
HANGS_WHILE_SHRUNK = 10


@dataclass
class Found:
    """One kind of trouble, with the simplest schedule that shows it."""

    number: Count
    played: FoundPlay
    times: Count = 1
    after_seconds: Seconds = 0.0
    after_schedules: Count = 0

    @property
    def trouble(self) -> Trouble:
        assert self.played.trouble is not None
        return self.played.trouble

    @property
    def schedule(self) -> Schedule:
        return self.played.schedule


@dataclass
class Campaign:
    """What was tried, and what was found. `seconds`: how long it is to search in all."""

    target: Target
    faults: tuple[str, ...]
    pinned: Mapping[str, Setting]
    seed: int
    seconds: float
    job: int = 0
    """Each job of a campaign draws schedules of its own."""
    rounds: int = 0
    """Begun so far: the next one is drawn from the seed of its number."""
    profile: str | None = None
    """Whose rules the schedules are judged by."""
    found: dict[str, Found] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    """What fails no more, by signature: it was shrunk and told, here or by another job."""
    schedules: int = 0
    refused: int = 0
    """Schedules whose settings the target does not take."""
    steps: int = 0
    events: int = 0
    elapsed: float = 0.0
    coverage: Coverage = field(default_factory=Coverage)
    seen_in: Counter[str] = field(default_factory=Counter)
    """In how many schedules each action, branch and invariant was exercised, and each abstract state seen."""

    def naming(self, fault: str) -> list[Found]:
        """What was found that this fault of the catalogue explains."""
        return [found for found in self.found.values() if fault in found.trouble.faults]

    @property
    def states(self) -> int:
        """How many abstract states were seen."""
        return sum(name.startswith(PREFIX) for name in self.seen_in)

    @property
    def seed_of_round(self) -> int:
        """A seed always tries its own schedules, and each job and round others."""
        return self.job * MOST_SEEDS + self.seed * MOST_ROUNDS + self.rounds


class _TimeUp(KeyboardInterrupt):
    """Not an Exception: Hypothesis hands this on at once."""


class _New(AssertionError):
    """A kind of trouble that was not seen before."""


OnSchedule = Callable[[Campaign], None]
OnFound = Callable[[Found], object]


def search(
    campaign: Campaign,
    player: Player,
    *,
    is_enough: Callable[[Campaign], bool] = lambda _: False,
    database: ExampleDatabase | None = None,
    progress: OnSchedule = lambda _: None,
    found: OnFound = lambda _: None,
    step_seconds: float = STEP_SECONDS,
) -> None:
    """Go on with a campaign until its seconds are over or it is enough, which is asked between two rounds.

    The campaign holds all that was done, also after a KeyboardInterrupt; what was found last may not be shrunk then.
    """
    gc.freeze()  # what was imported is never garbage, and to look through it again and again takes a tenth of the time
    running = _Search(campaign, player, progress, found, database, step_seconds)
    try:
        if campaign.job == 0 and campaign.rounds == 0:
            running.play_seeds()
        while not is_enough(campaign):
            running.round()
    except _TimeUp:
        pass
    finally:
        gc.unfreeze()
        running.take_time()


@dataclass
class _Search:
    campaign: Campaign
    player: Player
    progress: OnSchedule
    found: OnFound
    database: ExampleDatabase | None
    step_seconds: float
    is_first: bool = True
    _failed: Schedule | None = None

    def __post_init__(self) -> None:
        self._begin = time.monotonic() - self.campaign.elapsed

    @contextmanager
    def telling(self) -> Iterator[None]:
        """When the block ends, however it does, what is new in it is reported; shrunk, unless somebody does not want to wait."""
        is_stopped = True
        try:
            yield
            is_stopped = False
        except _TimeUp:
            is_stopped = False
            raise
        finally:
            self._tell_new(shrinks=not is_stopped)

    def take_time(self) -> None:
        self.campaign.elapsed = time.monotonic() - self._begin

    def play_seeds(self) -> None:
        """The seeds as they are, before anything is drawn."""
        campaign = self.campaign
        with self.telling():
            for seed in campaign.target.seeds:
                settings = {**seed.settings, **campaign.pinned}
                played = self._try_one(seed.model_copy(update={"settings": settings, "faults": campaign.faults}))
                if played is not None:
                    campaign.seen_in.update(exercised_in(played))

    def round(self) -> None:
        """One run of Hypothesis, up to new trouble, which is then shrunk. The first begins with what its database kept."""
        campaign = self.campaign
        test = hypothesis.given(schedules(campaign.target, campaign.pinned, campaign.faults))(self._try)
        test = hypothesis.seed(campaign.seed_of_round)(test)
        test = hypothesis.settings(  # after the seed, which would turn the database off
            max_examples=ROUND,
            deadline=None,
            database=self.database,
            suppress_health_check=list(HealthCheck),
            phases=(*((Phase.reuse,) if self.is_first else ()), Phase.generate, Phase.target),
            verbosity=Verbosity.quiet,
            report_multiple_bugs=False,
        )(test)
        campaign.rounds += 1
        self.is_first, self._failed = False, None
        with self.telling(), suppress(_New):
            test()

    def _try(self, schedule: Schedule) -> None:
        """Hypothesis tries once more what failed. It fails then without being played: a target may not do the same again."""
        if schedule != self._failed:
            if not self._shows_new_trouble(schedule):
                return
            self._failed = schedule
        raise _New

    def _shows_new_trouble(self, schedule: Schedule) -> bool:
        played = self._try_one(schedule)
        if played is None:
            hypothesis.reject()
        exercised, seen_in = exercised_in(played), self.campaign.seen_in
        hypothesis.target(rarity(exercised, seen_in), label="rarely exercised")
        seen_in.update(exercised)
        return played.trouble is not None and played.trouble.signature not in self.campaign.known

    def _try_one(self, schedule: Schedule) -> Played | None:
        self.take_time()
        if self.campaign.elapsed >= self.campaign.seconds:
            raise _TimeUp
        played = self._play(schedule)
        if played is not None and played.trouble is not None and self._may_be_a_busy_machine(played.trouble):
            played = self._play(schedule)
        if played is not None and played.trouble is not None:
            self._keep(played, played.trouble)
        return played

    def _may_be_a_busy_machine(self, trouble: Trouble) -> bool:
        """A first hang: on a busy machine it does not come again."""
        return trouble.kind == HANG and trouble.signature not in self.campaign.found

    def _tell_new(self, *, shrinks: bool) -> None:
        """What was found for the first time is shrunk and told; from now on it is known."""
        campaign = self.campaign
        for signature in [s for s in campaign.found if s not in campaign.known]:
            found = campaign.found[signature]
            try:
                if shrinks:
                    self._shrink(found)
            finally:
                campaign.known.add(signature)
                self.found(found)

    def _shrink(self, found: Found) -> None:
        signature = found.trouble.signature

        def still_fails(schedule: Schedule) -> bool:
            return take(self._play(schedule))

        def take(played: Played | None) -> bool:
            if played is None or played.trouble is None or played.trouble.signature != signature:
                return False
            found.played = played
            return True

        seconds = SHRINK_SECONDS
        if found.trouble.kind == HANG:
            seconds += HANGS_WHILE_SHRUNK * self.step_seconds
        shrunk(found.schedule, still_fails, seconds)
        if found.trouble.kind in SLOW:
            take(self.player.recorded(found.schedule))

    def _play(self, schedule: Schedule) -> Played | None:
        """None: the target does not take the settings."""
        campaign = self.campaign
        try:
            played = self.player.play(schedule.model_copy(update={"profile": campaign.profile}))
        except UserError:
            campaign.refused += 1
            return None
        campaign.schedules += 1
        campaign.steps += played.steps
        campaign.events += played.seen
        campaign.coverage.add(played.coverage)
        self.progress(campaign)
        return played

    def _keep(self, played: Played, trouble: Trouble) -> None:
        """What is the same is counted, and the simplest schedule of it is kept."""
        campaign = self.campaign
        found = campaign.found.get(trouble.signature)
        if found is None:
            number, when = len(campaign.found) + 1, campaign.elapsed
            campaign.found[trouble.signature] = Found(number, played, 1, when, campaign.schedules)
            return
        found.times += 1
        if played.schedule.size < found.schedule.size:
            found.played = played


def exercised_in(played: Played) -> set[str]:
    """Actions, branches of guards, invariants and abstract states, by name."""
    coverage = played.coverage
    return {*coverage.actions, *coverage.branches, *coverage.invariants, *played.states}


def rarity(exercised: Set[str], seen_in: Mapping[str, int]) -> float:
    """What a schedule is worth to the search: each thing that it met counts one over the schedules that met it."""
    return sum(1.0 / (1 + seen_in.get(name, 0)) for name in exercised)


def merged(jobs: Sequence[Campaign], numbers: dict[str, int]) -> Campaign:
    """What all jobs did: what was tried is added up, what is the same was found once.

    The order of the jobs makes no difference, but for findings that are equally simple: then it is that of the first job.
    `numbers`: that of each kind of trouble, which it keeps; new ones are added here.
    """
    first = jobs[0]
    total = Campaign(
        first.target, first.faults, first.pinned, first.seed, max(job.seconds for job in jobs), profile=first.profile
    )
    for job in jobs:
        total.rounds += job.rounds
        total.schedules += job.schedules
        total.refused += job.refused
        total.steps += job.steps
        total.events += job.events
        total.elapsed = max(total.elapsed, job.elapsed)
        total.coverage.add(job.coverage)
        total.seen_in.update(job.seen_in)
    found = [found for job in jobs for signature, found in job.found.items() if signature in job.known]
    for signature in dict.fromkeys(f.trouble.signature for f in sorted(found, key=lambda f: f.after_seconds)):
        numbers.setdefault(signature, len(numbers) + 1)
    for signature, number in numbers.items():
        if same := [f for f in found if f.trouble.signature == signature]:
            total.found[signature] = _merged(number, same)
    total.known = set(total.found)
    return total


def _merged(number: int, same: Sequence[Found]) -> Found:
    """The simplest of them, seen as often as all together, and as early as the first."""
    simplest = min(same, key=lambda found: found.schedule.size)
    earliest = min(same, key=lambda found: found.after_seconds)
    times = sum(found.times for found in same)
    when = earliest.after_seconds, earliest.after_schedules
    return Found(number, simplest.played, times, *when)
