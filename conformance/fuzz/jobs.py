"""The jobs of a campaign: one in this process, or several in processes of their own.

A job searches for a slice of time, says where it stands, and is given then what the others found meanwhile. So whatever becomes
of a process, little is lost: the job continues, in another process, from where it stood before the slice.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import closing, suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

from kvproof.conformance.fuzz.campaign import Campaign, search
from kvproof.conformance.fuzz.campaign_jobs import CampaignJobs, SearchOptions, database_of, player_of
from kvproof.conformance.fuzz.campaign_state import Plan, campaign_as_data, campaign_from_data
from kvproof.conformance.fuzz.child_process import CONTEXT, HAS_FORK, Child
from kvproof.conformance.fuzz.isolation import Player
from kvproof.conformance.fuzz.saved_play import Data
from kvproof.conformance.fuzz.target import Target
from kvproof.conformance.fuzz.targets import target_named

SLICE_SECONDS = 5.0
TRIES = 5
"""How often a job is begun that dies before it was heard of, until it is given up."""
POLL_SECONDS, STOP_SECONDS = 0.2, 5.0
Slice = TypeVar("Slice", bound=Hashable)


def search_here(whole: CampaignJobs) -> None:
    """One job, in this process."""
    campaign = whole.jobs[0]
    with closing(player_of(whole.target, whole.how)) as player:
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


def search_by_slices(
    whole: CampaignJobs,
    begin: Callable[[int], Slice],
    ended: Callable[[list[Slice]], Sequence[Slice]],
    answer: Callable[[Slice], Data | None],
    counted: Callable[[], tuple[int, int]] = lambda: (0, 0),
) -> None:
    """All jobs at once, slice by slice, until the seconds of each are over or what is found is enough.

    `begin` a slice of a job; of those that run some `ended`, after a while; an `answer` is None where the process died.
    `counted`: schedules and steps of the slices that run.
    """
    deaths: Counter[int] = Counter()
    running = {begin(job): job for job in range(whole.how.jobs)}
    while running and not whole.is_enough:
        for slice in ended(list(running)):
            job = running.pop(slice)
            data = answer(slice)
            if data is None:
                whole.lost(job)
                deaths[job] += 1
                goes_on = deaths[job] < TRIES
            else:
                deaths[job] = 0
                campaign = whole.said_by(data)
                whole.took(campaign)
                goes_on = campaign.elapsed < campaign.seconds
            if goes_on:
                running[begin(job)] = job
        whole.tell(*counted())


def search_by_processes(whole: CampaignJobs) -> None:
    """Each job in a process. A KeyboardInterrupt ends them; what was heard of them stays."""
    children: dict[int, Child] = {}
    counts = CONTEXT.RawArray("q", 2 * whole.how.jobs)
    target = whole.target if HAS_FORK else whole.plan.target

    def begin(job: int) -> int:
        if job not in children:
            arguments = (target, whole.plan, whole.how, whole.folder, counts)
            children[job] = Child(f"kvproof-job-{job}", _work, *arguments)
        with suppress(OSError):  # it died: that is heard next
            children[job].connection.send(whole.asked_of(job))
        return job

    def ended(jobs: list[int]) -> list[int]:
        ready = wait([children[job].connection for job in jobs], POLL_SECONDS)
        return [job for job in jobs if children[job].connection in ready or not children[job].is_alive]

    def answer(job: int) -> Data | None:
        counts[2 * job] = counts[2 * job + 1] = 0
        with suppress(EOFError, OSError):
            if children[job].connection.poll():  # who still holds the other end of a dead one is not the job
                data: Data = children[job].connection.recv()
                return data
        children.pop(job).end()
        return None

    try:
        search_by_slices(whole, begin, ended, answer, lambda: (sum(counts[::2]), sum(counts[1::2])))
    finally:
        for child in children.values():
            child.end(STOP_SECONDS)


def _work(
    connection: Connection, target: Target | str, plan: Plan, how: SearchOptions, folder: Path, counts: Any
) -> None:
    """In the process of a job: search where one is asked to go on, until nobody asks any more."""
    signal.signal(signal.SIGTERM, _interrupt)
    if isinstance(target, str):
        target = target_named(target)
    with suppress(KeyboardInterrupt), closing(player_of(target, how)) as player:
        while True:
            campaign = campaign_from_data(connection.recv(), plan, target)
            before = campaign.schedules, campaign.steps

            def count(campaign: Campaign, before: tuple[int, int] = before) -> None:
                of_job = 2 * campaign.job
                counts[of_job] = campaign.schedules - before[0]
                counts[of_job + 1] = campaign.steps - before[1]

            go_on(campaign, player, how, folder, count)
            connection.send(campaign_as_data(campaign))


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
