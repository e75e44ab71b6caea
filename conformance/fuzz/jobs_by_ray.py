"""The jobs of a campaign on many machines: each slice of each job is a task of a Ray cluster. `pip install 'kvproof[ray,fuzz]'`,
on every node, and the target with it.

What goes there and comes back is JSON. A task whose worker died is lost with its slice, and the job continues.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from kvproof.conformance.fuzz.campaign_jobs import CampaignJobs, SearchOptions, player_of
from kvproof.conformance.fuzz.campaign_state import Plan, campaign_as_data, campaign_from_data
from kvproof.conformance.fuzz.jobs import POLL_SECONDS, go_on, search_by_slices
from kvproof.conformance.fuzz.targets import target_named
from kvproof.conformance.replay.many_traces_by_ray import cluster


def search_by_ray(whole: CampaignJobs, address: str) -> None:
    """Until the seconds of each job are over, or what is found is enough."""
    with cluster(address) as ray:
        task = ray.remote(num_cpus=1, max_retries=0)(search_slice)

        def begin(job: int) -> Any:
            return task.remote(json.dumps(whole.asked_of(job)), whole.plan, whole.how)

        def ended(slices: list[Any]) -> Any:
            return ray.wait(slices, num_returns=1, timeout=POLL_SECONDS)[0]

        def answer(slice: Any) -> Any:
            try:
                return json.loads(ray.get(slice))
            except ray.exceptions.RayError:
                return None

        search_by_slices(whole, begin, ended, answer)


def search_slice(asked: str, plan: Plan, how: SearchOptions) -> str:
    """On a worker: go on with a job for a slice of time."""
    target = target_named(plan.target)
    campaign = campaign_from_data(json.loads(asked), plan, target)
    with closing(player_of(target, how)) as player, tempfile.TemporaryDirectory(prefix="kvproof-examples-") as folder:
        go_on(campaign, player, how, Path(folder), lambda _: None)
    return json.dumps(campaign_as_data(campaign))
