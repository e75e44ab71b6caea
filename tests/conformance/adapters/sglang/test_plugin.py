"""The plugin and the launcher, as far as they go without a server: idle when off, found when on, honest about what is missing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest
from command_line import completed, of_its_own, refusal

from kvproof.conformance.adapters.live import live_trace
from kvproof.conformance.adapters.sglang import launch
from kvproof.conformance.adapters.sglang.launch import PRELOAD

HEAVY = ("torch", "z3", "sglang", "pydantic", "numpy")

# A stand-in for SGLang's scheduler module: what the launcher's recorder wraps is called, and says by whom.
FAKE_SCHEDULER = """
class Scheduler:
    def run_event_loop(self):
        return "ran"
"""


def run_python(script: str, **environment: str) -> str:
    done = completed([sys.executable, "-c", script], env={**os.environ, **environment}, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_the_plugin_imports_nothing_and_does_nothing_when_off() -> None:
    script = f"""
import sys
import kvproof.conformance.adapters.sglang.plugin as plugin
before = set(sys.modules)
plugin.load()
print([name for name in {HEAVY} if name in sys.modules], set(sys.modules) - before)
"""
    assert run_python(script, KVPROOF_TRACE="") == "[] set()\n"


def test_what_a_server_imports_to_record_needs_neither_a_solver_nor_torch() -> None:
    script = f"""
import sys
import kvproof.conformance.adapters.sglang.capture
print([name for name in {HEAVY} if name in sys.modules])
"""
    assert run_python(script) == "['pydantic']\n"


def test_the_plugin_is_an_entry_point_of_sglangs_group() -> None:
    (plugin,) = metadata.entry_points(group="sglang.srt.plugins")
    assert plugin.name == "kvproof" and callable(plugin.load())


def fake_sglang(folder: Path) -> str:
    package = folder / "sglang" / "srt" / "managers"
    package.mkdir(parents=True)
    for part in (package, *list(package.parents)[:2]):
        (part / "__init__.py").touch()
    (package / "scheduler.py").write_text(FAKE_SCHEDULER)
    return os.pathsep.join([str(PRELOAD), str(folder), os.environ.get("PYTHONPATH", "")])


@pytest.mark.parametrize("is_on", [True, False])
def test_preload_wraps_the_event_loop_of_an_unknown_release_if_it_is_on_and_lets_it_run(
    tmp_path: Path, is_on: bool
) -> None:
    """Nothing of this SGLang is known, so nothing can be recorded; its event loop must not notice."""
    script = """
import logging
logging.basicConfig()
from sglang.srt.managers.scheduler import Scheduler
print(Scheduler().run_event_loop(), hasattr(Scheduler.run_event_loop, "__wrapped__"))
"""
    trace = tmp_path / "t.jsonl"
    output = run_python(script, PYTHONPATH=fake_sglang(tmp_path), KVPROOF_TRACE=str(trace) if is_on else "")
    assert output.startswith(f"ran {is_on}\n")
    assert output.count("kvproof records nothing: ") == is_on
    assert not trace.exists()


def test_preload_runs_the_sitecustomize_that_it_hides(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('the hidden one')")
    path = os.pathsep.join([str(PRELOAD), str(tmp_path), os.environ.get("PYTHONPATH", "")])
    assert run_python("print('main')", PYTHONPATH=path, KVPROOF_TRACE="") == "the hidden one\nmain\n"


# -- the launcher --


def test_launcher_gives_the_exit_code_and_the_environment_of_its_command(tmp_path: Path) -> None:
    check = "import os, sys; sys.exit(7 if os.environ['KVPROOF_TRACE'].endswith('t.jsonl') else 1)"
    launched = launch.launch([sys.executable, "-c", check], tmp_path / "a" / "t.jsonl")
    assert (launched.exit_code, launched.traces) == (7, ())


def test_launcher_passes_signals_on_and_names_the_one_that_ended_it(tmp_path: Path) -> None:
    """The command ends by the signal that the launcher was sent, after its own handler ran. It sleeps for short times: a
    signal that comes just before a sleep is handled after it."""
    command = (
        "import signal, sys, time\n"
        "def handle(number, frame):\n"
        "    print('handled', flush=True)\n"
        "    signal.signal(number, signal.SIG_DFL)\n"
        "    signal.raise_signal(number)\n"
        "signal.signal(signal.SIGTERM, handle)\n"
        "print('up', flush=True)\n"
        "for _ in range(600): time.sleep(0.1)\n"
    )
    launcher = of_its_own("record", "--target", "sglang-server", "--out", tmp_path / "t.jsonl", "--")
    process = subprocess.Popen(
        [*launcher, sys.executable, "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    rest, error = process.communicate(timeout=30)
    assert rest == "handled\n"
    assert process.returncode == 128 + signal.SIGTERM
    assert "nothing was recorded into" in error


def test_launcher_replaces_an_old_trace_but_never_one_that_is_being_written(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    out.write_text("an old one")
    path, file = live_trace.new_file(str(tmp_path / "live.jsonl"), None)
    try:
        arguments = ("record", "--target", "sglang-server", "--out", path, "--", sys.executable, "-c", "")
        assert "is being written by a running server" in refusal(*arguments)
        assert path.exists()
    finally:
        os.close(file)
    launch.launch([sys.executable, "-c", ""], out)
    assert not out.exists()


def test_launcher_waits_for_the_process_that_writes(tmp_path: Path) -> None:
    out = tmp_path / "t.jsonl"
    slow = (
        "import os, time\n"
        "from kvproof.conformance.adapters.live import live_trace\n"
        "path, file = live_trace.new_file(os.environ['KVPROOF_TRACE'], None)\n"
        "if os.fork() == 0:\n"
        "    time.sleep(2); os.write(file, b'last words'); os._exit(0)\n"
    )
    began = time.monotonic()
    launched = launch.launch([sys.executable, "-c", slow], out)
    assert time.monotonic() - began > 1
    assert launched.traces == (out,) and out.read_bytes() == b"last words"


def test_a_clock_that_steps_back_hides_no_trace(tmp_path: Path) -> None:
    """The file is older, by the time of day, than the launch: that of another day."""
    out = tmp_path / "t.jsonl"
    old = "import os; path = os.environ['KVPROOF_TRACE']; open(path, 'w').close(); os.utime(path, (1, 1))"
    assert launch.launch([sys.executable, "-c", old], out).traces == (out,)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--target", "sglang-server"], "needs the command that starts the server"),
        (["--target", "sglang-server", "--scenario", "basic", "--", "true"], "takes --out and a command only"),
        (["--target", "sglang-server", "--", "no-such-command-here"], "there is no such command"),
        (["--scenario", "basic", "--", "true"], "is run with --target sglang-server only"),
    ],
)
def test_a_mistake_is_answered_in_one_line(tmp_path: Path, arguments: list[str], what: str) -> None:
    assert what in refusal("record", "--out", tmp_path / "t.jsonl", *arguments)


# -- kvproof sglang-env --


def fake_installation(folder: Path, version: str, plugins: bool) -> str:
    info = folder / f"sglang-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")
    if plugins:
        (folder / "sglang" / "srt" / "plugins").mkdir(parents=True)
        (folder / "sglang" / "srt" / "plugins" / "__init__.py").touch()
    plugin = folder / "some_plugins-1.dist-info"
    plugin.mkdir()
    (plugin / "METADATA").write_text("Metadata-Version: 2.1\nName: some-plugins\nVersion: 1\n")
    (plugin / "entry_points.txt").write_text("[sglang.srt.plugins]\nkvproof = kvproof:nothing\n")
    return os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])


KNOWN, WITHOUT_PLUGINS, UNKNOWN = ("0.5.11", True), ("0.5.10.post1", False), ("9.9.9", True)


@pytest.mark.parametrize(
    ("installed", "chosen", "code", "said"),
    [
        (KNOWN, "", 0, "export KVPROOF_TRACE="),
        (KNOWN, "another", 2, "SGLANG_PLUGINS=another leaves kvproof out"),
        (WITHOUT_PLUGINS, "", 0, "kvproof record --target sglang-server"),
        (UNKNOWN, "", 3, "not among the known releases"),
        (None, "", 2, "error: SGLang is not installed"),
    ],
)
def test_the_environment_that_a_release_needs(
    tmp_path: Path, installed: tuple[str, bool] | None, chosen: str, code: int, said: str
) -> None:
    path = fake_installation(tmp_path, *installed) if installed is not None else os.environ.get("PYTHONPATH", "")
    plugins = {"SGLANG_PLUGINS": chosen} if chosen else {}
    done = completed(of_its_own("sglang-env"), env={**os.environ, "PYTHONPATH": path, **plugins})
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True)
    if installed == WITHOUT_PLUGINS:
        assert "export" not in done.stdout
