"""Real servers of real releases, each in processes of its own on 127.0.0.1, and clients that talk HTTP to them."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglang_process import ENVIRONMENT, site_of

from kvproof.conformance.adapters.sglang.engine import BARE_CPU, TINY_LLAMA

START_SECONDS = 150.0
STOP_SECONDS = 40.0
ANSWER_SECONDS = 60.0
SITE_OF_STAND_INS = Path(__file__).with_name("server_site")


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    port: int
    log: Path
    trace: Path | None

    def post(self, path: str, body: dict[str, Any], *, as_text: bool = False) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            text = answer.read()
        return text if as_text or not text.strip() else json.loads(text)

    def open_session(self, session: str) -> None:
        self.post("/open_session", {"capacity_of_str_len": 1 << 20, "session_id": session, "streaming": True})

    def close_session(self, session: str) -> None:
        self.post("/close_session", {"session_id": session})

    def generate(self, input_ids: list[int], max_new_tokens: int, *, session: str | None = None) -> Any:
        return self.post("/generate", _asked(input_ids, max_new_tokens, session))

    def hang_up(self, input_ids: list[int], max_new_tokens: int, *, session: str | None = None) -> None:
        """Ask for a long answer, read its beginning and go away, which the server takes as an abort."""
        body = {**_asked(input_ids, max_new_tokens, session), "stream": True}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        connection.request("POST", "/generate", json.dumps(body), {"Content-Type": "application/json"})
        connection.getresponse().read(1)
        connection.close()

    def trace_size(self) -> int:
        return self.trace.stat().st_size if self.trace is not None else 0

    def is_up(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/model_info", timeout=2):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def stop(self, how: int = signal.SIGTERM) -> int:
        """End the server as its operator would; the exit code. What is left after a while is killed."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)  # its own group: it was started as the leader of one
            return self.process.wait()

    def scheduler_pid(self) -> int:
        """The process that holds the scheduler, by the name that SGLang gives it."""
        for pid in _descendants(self.process.pid):
            if b"sglang::scheduler" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
        raise AssertionError(f"no scheduler below {self.process.pid}; log: {self.log}")


def _asked(input_ids: list[int], max_new_tokens: int, session: str | None) -> dict[str, Any]:
    sampling = {"max_new_tokens": max_new_tokens, "temperature": 0.0, "ignore_eos": True}
    of_session = {"session_params": {"id": session}} if session is not None else {}
    return {"input_ids": input_ids, "sampling_params": sampling, **of_session}


@contextmanager
def server(
    release: str,
    folder: Path,
    *arguments: str,
    trace: Path | None = None,
    environment: dict[str, str] | None = None,
    launcher: tuple[str, ...] = (),
) -> Iterator[Server]:
    """A running server of a release. `launcher`: the command before `python -m sglang.launch_server`."""
    site = site_of(release)
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "tiny-llama"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps(TINY_LLAMA))
    port = _free_port()
    python = str(ENVIRONMENT / "bin" / "python")
    command = [
        *launcher, python, "-W", "ignore", "-m", "sglang.launch_server", "--model-path", str(model),
        "--load-format", "dummy", "--device", "cpu", "--attention-backend", "torch_native",
        "--sampling-backend", "pytorch", "--grammar-backend", "none", "--skip-tokenizer-init",
        "--max-total-tokens", "8192", "--max-running-requests", "8", "--disable-cuda-graph",
        "--skip-server-warmup", "--context-length", "4096", "--mem-fraction-static", "0.3",
        "--enable-streaming-session", "--host", "127.0.0.1", "--port", str(port), *arguments,
    ]  # fmt: skip
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(site, trace, environment or {}),
            start_new_session=True,
        )
    running = Server(process, port, log, trace)
    try:
        _wait_until_up(running)
        yield running
    finally:
        running.stop()
        for pid in [pid for pid, _, group in _processes() if group == process.pid]:
            os.kill(pid, signal.SIGKILL)


def _environment(site: Path, trace: Path | None, more: dict[str, str]) -> dict[str, str]:
    path = [os.environ.get("PYTHONPATH", ""), str(SITE_OF_STAND_INS), str(site)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), **BARE_CPU, **more}
    environment.pop("KVPROOF_TRACE", None)
    if trace is not None:
        environment["KVPROOF_TRACE"] = str(trace)
    return environment


def _wait_until_up(server: Server) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not server.is_up():
        if server.process.poll() is not None or time.monotonic() > deadline:
            server.stop(signal.SIGKILL)
            raise AssertionError(f"the server did not start:\n{server.log.read_text(errors='replace')[-4000:]}")
        time.sleep(0.3)


def _free_port() -> int:
    """A low one: SGLang derives further ports from it by adding thousands."""
    dice = random.Random(os.urandom(8))
    while True:
        port = dice.randrange(20000, 30000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _processes() -> Iterator[tuple[int, int, int]]:
    """(pid, parent, group) of every process."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            _, parent, group, *_ = stat.read_text().rpartition(")")[2].split()
            yield int(stat.parent.name), int(parent), int(group)


def _descendants(root: int) -> list[int]:
    known, found = list(_processes()), [root]
    for parent in found:
        found += [pid for pid, its_parent, _ in known if its_parent == parent]
    return found[1:]
