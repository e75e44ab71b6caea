"""Many traces on many machines: each is judged by a task of a Ray cluster. `pip install 'kvproof[ray]'`, on every node.

Every node must find the traces under the same path. A task whose worker dies is begun again, by Ray, in another one. What
comes back is JSON, so a report is the same whoever made it.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.many_traces import (
    ANSWER,
    POLL_SECONDS,
    TRIES,
    CouldNotJudge,
    Judged,
    Options,
    Told,
    called,
    judged,
)

LOCAL = "local"
CONNECT_SECONDS = 5.0
INSTALL = "pip install 'kvproof[ray]'"


def judge_by_ray(paths: Sequence[Path], options: Options, address: str, told: Told) -> list[Judged]:
    """Each trace by a task; the answers in the order of the traces."""
    with cluster(address) as ray:
        judge = ray.remote(num_cpus=1, max_retries=TRIES - 1)(judge_trace)
        numbers = {judge.remote(str(path.absolute()), options): n for n, path in enumerate(paths)}
        answers: dict[int, Judged] = {}
        waiting = list(numbers)
        while waiting:
            ended, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=POLL_SECONDS)
            for task in ended:
                answers[numbers[task]] = _answer(ray, task, paths[numbers[task]])
            told(sum(getattr(a, "events", 0) for a in answers.values()), len(answers), len(paths))
    return [answers[n] for n in range(len(paths))]


def judge_trace(path: str, options: Options) -> str:
    """On a worker: the answer as JSON."""
    return json.dumps(ANSWER.dump_python(judged(Path(path), options), mode="json"))


def _answer(ray: Any, task: Any, path: Path) -> Judged:
    try:
        return called(path, ANSWER.validate_python(json.loads(ray.get(task))))
    except ray.exceptions.RayError as error:
        why = str(error).strip().splitlines()[-1]
        return CouldNotJudge(path, f"{path}: its worker failed {TRIES} times on the Ray cluster: {why}")


def _require_listener(address: str) -> None:
    """Ray itself would try for minutes where nobody listens, and then end the process."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal():
        if address in (LOCAL, "auto"):
            return
        raise UserError(f"--ray {address}: no address; give HOST:PORT, auto, or {LOCAL}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"--ray {address}: nobody listens there ({error}); give HOST:PORT, auto, or {LOCAL}") from error


@contextmanager
def cluster(address: str) -> Iterator[Any]:
    """A cluster to run tasks on: the one at an address, or one that is made here and ends with the replay."""
    try:
        import ray
    except ImportError as error:
        raise UserError(f"--ray needs Ray, which is not installed: {INSTALL}") from error
    _require_listener(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet = {"logging_level": "ERROR", "log_to_driver": False}
    try:
        if address == LOCAL:
            ray.init(address="local", include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)
        else:
            ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        why = " ".join(str(error).split())
        raise UserError(f"--ray {address}: no Ray cluster there ({why}); give HOST:PORT, auto, or {LOCAL}") from error
    try:
        yield ray
    finally:
        ray.shutdown()
