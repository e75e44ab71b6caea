"""The jobs of a campaign: one in this process, or several in processes of their own.

A job searches for a slice of time and is given then what the others found meanwhile; in between it says where it stands. So
whatever becomes of a process, little is lost: it is begun again with what was heard last.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from kvproof.conformance.fuzz.campaign import Campaign, search
from kvproof.conformance.fuzz.campaign_jobs import CampaignJobs, SearchOptions, database_of, player_of
from kvproof.conformance.fuzz.campaign_state import Plan, campaign_as_data, campaign_from_data
from kvproof.conformance.fuzz.isolation import HAS_FORK, Player, die_with_parent
from kvproof.conformance.fuzz.saved_play import Data
from kvproof.conformance.fuzz.target import Target
from kvproof.conformance.fuzz.targets import target_named

SLICE_SECONDS, SAY_SECONDS = 5.0, 2.0
TRIES = 5
"""How often a job is begun that dies before it was heard of, until it is given up."""
POLL_SECONDS, STOP_SECONDS = 0.2, 5.0


def search_here(whole: CampaignJobs) -> None:
    """One job, in this process."""
    player = player_of(whole.target, whole.how)
    campaign = whole.jobs[0]
    try:
        search(
            campaign,
            player,
            is_enough=lambda _: whole.is_enough,
            database=database_of(whole.folder, 0),
            progress=whole.look,
            found=lambda _: whole.took(campaign),
            step_seconds=whole.how.step_seconds,
        )
    finally:
        player.close()
        whole.took(campaign)


def go_on(
    campaign: Campaign, player: Player, how: SearchOptions, folder: Path, tell: Callable[[Campaign], None]
) -> None:
    """Let a job search for a slice of time: whole rounds, until it is over or something was found."""
    end, known = campaign.elapsed + SLICE_SECONDS, len(campaign.known)
    search(
        campaign,
        player,
        is_enough=lambda c: c.elapsed >= end or len(c.known) > known,
        database=database_of(folder, campaign.job),
        progress=tell,
        step_seconds=how.step_seconds,
    )


def search_by_processes(whole: CampaignJobs) -> None:
    """Each job in a process. A KeyboardInterrupt ends them; what was heard of them stays."""
    workers = [_Worker(whole, job) for job in range(whole.how.jobs)]
    try:
        for worker in workers:
            worker.begin()
        while running := [worker for worker in workers if worker.is_running]:
            ready = wait([worker.connection for worker in running], POLL_SECONDS)
            for worker in running:
                if worker.connection in ready or not worker.is_alive:
                    worker.hear()
            whole.tell(*map(sum, zip(*(worker.counted() for worker in workers), strict=True)))
    finally:
        for worker in workers:
            worker.end()
        for worker in workers:
            worker.stop()


class _Worker:
    """One job and its process."""

    def __init__(self, whole: CampaignJobs, job: int) -> None:
        self._whole, self._job = whole, job
        self._context: Any = multiprocessing.get_context("fork" if HAS_FORK else "spawn")
        self._counts = self._context.RawArray("q", 2)
        self._process: Any = None
        self._deaths = 0
        self.connection: Any = None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def is_alive(self) -> bool:
        return self._process is not None and bool(self._process.is_alive())

    def begin(self) -> None:
        whole = self._whole
        here, there = self._context.Pipe()
        target = whole.target if HAS_FORK else whole.plan.target
        arguments = (target, whole.plan, whole.how, whole.folder, there, self._counts)
        self._process = self._context.Process(target=_work, args=arguments, name=f"kvproof-job-{self._job}")
        self._process.start()
        there.close()
        self.connection = here
        self._ask()

    def hear(self) -> None:
        """It says where it stands, or it died."""
        try:
            if not self.connection.poll():
                raise EOFError  # who still holds the other end is not the job
            data, is_over = self.connection.recv()
        except (EOFError, OSError):
            self._died()
            return
        self._deaths = 0
        self._counts[0] = self._counts[1] = 0
        campaign = self._whole.said_by(data)
        self._whole.took(campaign)
        if not is_over and not self._whole.is_enough:
            return
        if campaign.elapsed >= campaign.seconds or self._whole.is_enough:
            self.stop()
        else:
            self._ask()

    def counted(self) -> tuple[int, int]:
        """Schedules and steps since it was heard of."""
        return self._counts[0], self._counts[1]

    def end(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def stop(self) -> None:
        if self._process is not None:
            self.end()
            self.connection.close()
            self._process.join(STOP_SECONDS)
            self._process.kill()
            self._process.join()
            self._process = None

    def _ask(self) -> None:
        with suppress(OSError):  # it died: that is heard next
            self.connection.send(self._whole.asked_of(self._job))

    def _died(self) -> None:
        self.stop()
        self._whole.lost(self._job)
        self._deaths += 1
        if self._deaths < TRIES:
            self.begin()


def _work(
    target: Target | str, plan: Plan, how: SearchOptions, folder: Path, connection: Connection, counts: Any
) -> None:
    """In the process of a job: search where one is asked to go on, until nobody asks any more."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the parent's, who ends its jobs
    signal.signal(signal.SIGTERM, _interrupt)
    if isinstance(target, str):
        target = target_named(target)
    player = player_of(target, how)
    saying = _Saying(connection, counts)
    with suppress(KeyboardInterrupt, EOFError, OSError):
        while True:
            asked: Data = connection.recv()
            campaign = campaign_from_data(asked, plan, target)
            saying.said(campaign)
            go_on(campaign, player, how, folder, saying.say)
            connection.send((campaign_as_data(campaign), True))
    player.close()


class _Saying:
    """How a job stands: its numbers at once, all of it now and then."""

    def __init__(self, connection: Connection, counts: Any) -> None:
        self._connection, self._counts = connection, counts

    def said(self, campaign: Campaign) -> None:
        self._before = campaign.schedules, campaign.steps
        self._next = time.monotonic() + SAY_SECONDS

    def say(self, campaign: Campaign) -> None:
        self._counts[0], self._counts[1] = campaign.schedules - self._before[0], campaign.steps - self._before[1]
        if time.monotonic() >= self._next:
            self._connection.send((campaign_as_data(campaign), False))
            self.said(campaign)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
