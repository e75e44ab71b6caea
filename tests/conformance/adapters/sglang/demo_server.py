"""A real SGLang server on a CPU, recorded while clients use it, then judged.

    make demo-server RELEASE=0.5.23

The server is started with kvproof's plugin on 127.0.0.1, with a tiny model of random weights. Three sessions of some turns and
ordinary requests run side by side; one client hangs up in the middle of an answer. Then the server is stopped by its process
id, and `kvproof replay` says what its trace shows.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sglang_process import ENVIRONMENT, ROOT
from sglang_server import Server, server

FOLDER = ROOT / "out" / "demo-server"
TURNS = 4


def talk(running: Server, session: str, *, hangs_up: bool) -> int:
    """Some turns of one session. The number of answers."""
    dice = random.Random(session)
    running.open_session(session)
    for _ in range(TURNS):
        running.generate(tokens(dice, dice.randrange(5, 40)), dice.randrange(4, 24), session=session)
    if hangs_up:
        running.hang_up(tokens(dice, 20), 200, session=session)
    running.close_session(session)
    return TURNS


def ask(running: Server, seed: int) -> int:
    """Ordinary requests. The number of answers."""
    dice = random.Random(seed)
    for _ in range(TURNS):
        running.generate(tokens(dice, dice.randrange(5, 60)), dice.randrange(4, 24))
    return TURNS


def tokens(dice: random.Random, number: int) -> list[int]:
    return [dice.randrange(3, 500) for _ in range(number)]


def use(running: Server) -> int:
    """All clients at once. The number of answers."""
    with ThreadPoolExecutor() as clients:
        talks = [clients.submit(talk, running, name, hangs_up=name == "c") for name in ("a", "b", "c")]
        asks = [clients.submit(ask, running, seed) for seed in range(2)]
        return sum(client.result() for client in (*talks, *asks))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default="0.5.23")
    release = parser.parse_args().release
    if not (ENVIRONMENT / "site" / release).is_dir():
        there = ", ".join(sorted(site.name for site in (ENVIRONMENT / "site").glob("*")))
        print(f"error: no SGLang {release} in {ENVIRONMENT.name}, which has {there or 'none'}", file=sys.stderr)
        return 2
    trace = FOLDER / f"{release}.jsonl"
    FOLDER.mkdir(parents=True, exist_ok=True)
    trace.unlink(missing_ok=True)
    print(f"SGLang {release} starts on 127.0.0.1 (its log: {(FOLDER / 'server.log').relative_to(ROOT)})", flush=True)
    with server(release, FOLDER, "--page-size", "4", trace=trace) as running:
        print(f"{use(running)} answers; the server is stopped", flush=True)
    command = ["kvproof", "replay", str(trace.relative_to(ROOT)), "--profile", "auto"]
    print(f"$ {' '.join(command)}", flush=True)
    return subprocess.run(
        [str(Path(sys.executable).with_name("kvproof")), *command[1:]], cwd=ROOT, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
