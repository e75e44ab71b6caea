"""Machine code for what every step does tells what Python tells, and refuses what it does not know."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sglang_process import EACH_RELEASE, RELEASES, run_with_sglang
from test_steps import Req, Server, Tensor, drive

from kvproof.conformance.adapters.live.assembly import AGAIN, GAINED, Assembly
from kvproof.conformance.adapters.live.lines import Lines, event_line
from kvproof.conformance.adapters.live.runs import RUN, unpacked
from kvproof.conformance.adapters.live.tally import Tally
from kvproof.conformance.adapters.sglang import front
from kvproof.conformance.adapters.sglang.steps import WAYS
from kvproof.conformance.errors import UserError

needs_a_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where it was built."""
    at = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVPROOF_CACHE", str(at))
        front.build()
        yield at


def driven(page_size: int, seed: int, *, overlap: bool, way: str = "its own", machine: bool = True) -> Server:
    server = Server(page_size, in_full=False, way=way, front=front.front_of if machine else None)
    drive(server, seed, overlap=overlap)
    server.steps.tell_result()
    return server


def steps_of(server: Server) -> list[Any]:
    assembly = Assembly(server.page_size)
    return [event for record in unpacked(server.records) for event in assembly.events(record)]


@needs_a_compiler
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("page_size", [1, 4, 64])
def test_machine_code_tells_what_python_tells(folder: Path, page_size: int, overlap: bool, way: str) -> None:
    for seed in range(4):
        quick, slow = (driven(page_size, seed, overlap=overlap, way=way, machine=machine) for machine in (True, False))
        assert steps_of(quick) == steps_of(slow)
        runs = [record for record in quick.records if isinstance(record, tuple) and record[0] == RUN]
        inside = [kind for kind, *_ in unpacked(runs)]
        assert {AGAIN, GAINED} >= set(inside) and len(inside) > 20, "so it was machine code"
        assert all(count <= 33 for _, count, *_ in runs)


@needs_a_compiler
def test_lines_and_the_tally_of_runs_are_those_of_their_events(folder: Path) -> None:
    for page_size in (1, 4):
        server = driven(page_size, 3, overlap=True)
        events = steps_of(server)
        assert Lines(page_size).of(server.records) == [event_line(seq, event) for seq, event in enumerate(events)]
        assert Tally().of(server.records) == len(events)
        half = len(server.records) // 2
        tally = Tally()
        assert tally.of(server.records[:half]) + tally.of(server.records[half:]) == len(events)


def in_charge(page_size: int = 4) -> Server:
    """A server whose steps are read by machine code from now on."""
    server = Server(page_size, in_full=False, front=front.front_of)
    server.reqs = [Req("a", 1, 5), Req("b", 2, 5)]
    server.notes.event("extend", turn="a")
    server.decode()
    return server


def batch_of(server: Server) -> Any:
    lens = Tensor(req.kv_committed_len for req in server.reqs)
    return SimpleNamespace(reqs=server.reqs, seq_lens_cpu=lens, out_cache_loc=lens)


@needs_a_compiler
@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        (1 << 40, OverflowError, "31 bits"),
        (None, TypeError, "NoneType"),
    ],
)
def test_a_length_that_it_does_not_know_is_an_error_and_leaves_what_was_read(
    folder: Path, value: Any, error: type[Exception], said: str
) -> None:
    server = in_charge()
    server.decode()
    server.reqs[1].cache_protected_len = value
    with pytest.raises(error, match=said):
        server.steps.listeners().prepared_for_decode(batch_of(server))
    server.steps.tell_result()
    assert [event["after"]["kv_committed_len"] for event in steps_of(server)[1:]] == [6, 6, 7, 7]


@needs_a_compiler
def test_a_step_without_a_page_for_each_request_is_an_error(folder: Path) -> None:
    server = in_charge(page_size=1)
    batch = batch_of(server)
    batch.out_cache_loc = Tensor([1])
    with pytest.raises(ValueError, match="one number for each"):
        server.steps.listeners().prepared_for_decode(batch)


@needs_a_compiler
def test_what_makes_python_take_over_while_a_step_is_read_is_an_error_and_no_crash(folder: Path) -> None:
    server = in_charge()

    class Strange(Req):
        @property
        def kv_allocated_len(self) -> int:
            server.steps.tell_result()
            return 1

    server.reqs[0].__class__ = Strange
    with pytest.raises(RuntimeError, match="just being read"):
        server.steps.listeners().prepared_for_decode(batch_of(server))


@needs_a_compiler
def test_it_keeps_nothing_alive(folder: Path) -> None:
    server = in_charge()
    for _ in range(50):
        server.decode()
        server.result(server.reqs, None)
    server.steps.tell_result()
    req, records = server.reqs[0], server.records
    before = sys.getrefcount(req)
    for _ in range(300):
        server.decode()
        server.result(server.reqs, None)
        server.notes.event("open", session="s")
    server.steps.tell_result()
    records.clear()
    assert sys.getrefcount(req) == before
    del server
    gc.collect()
    assert sys.getrefcount(req) < before


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_it_touches_no_memory_that_is_not_its_own(tmp_path: Path) -> None:
    """Under the sanitizers of gcc, which end the process."""
    library = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(library).is_absolute():
        pytest.skip("no libasan")
    checked = {
        "CC": "gcc -fsanitize=address,undefined -fno-sanitize-recover=all -g",
        "LD_PRELOAD": library,
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's own, at its end
        "PYTHONMALLOC": "malloc",
        "KVPROOF_CACHE": str(tmp_path),
    }
    script = Path(__file__).with_name("drive_made_up.py")
    done = subprocess.run(
        [sys.executable, str(script), "5"], env={**os.environ, **checked}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "the same: 150"


# -- where it is, and where it is not --


def test_where_it_was_not_built_python_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPROOF_CACHE", str(tmp_path))
    assert front.built() is None
    server = driven(4, 1, overlap=False)
    assert server.steps.listeners() is server.steps
    assert RUN not in server.kinds()


@needs_a_compiler
def test_what_somebody_else_may_have_put_there_is_not_loaded(folder: Path) -> None:
    at = front.place()
    assert front.built() is not None
    for path in (at, at.parent, at.parent.parent):
        mode = path.stat().st_mode
        path.chmod(mode | 0o002)
        assert front.built() is None
        path.chmod(mode)
    assert front.built() is not None


@needs_a_compiler
def test_what_is_there_and_cannot_be_loaded_is_left_to_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPROOF_CACHE", str(tmp_path))
    at = front.build()
    at.unlink()  # this process has the old file in its memory
    at.write_bytes(b"no machine code")
    assert front.built() is None and front.front_of() is None


def test_without_a_compiler_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVPROOF_CACHE", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(UserError, match="no C compiler 'no-such-compiler': install one, or name it in CC"):
        front.build()


def test_other_source_is_another_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(front.SOURCES, tmp_path / "sources")
    before = front.place()
    monkeypatch.setattr(front, "SOURCES", tmp_path / "sources")
    assert front.place() == before
    for source in (tmp_path / "sources").iterdir():
        source.write_text(source.read_text() + "\n")
        assert front.place() != before
        before = front.place()


@needs_a_compiler
def test_what_does_not_compile_is_said_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "front.c").write_text("this is no C\n")
    monkeypatch.setenv("KVPROOF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(front, "SOURCES", tmp_path)
    with pytest.raises(UserError, match=r"could not build the recorder.s machine code: .*front\.c:1"):
        front.build()
    assert front.built() is None and not any(front.place().parent.iterdir())


# -- real SGLang --


@needs_a_compiler
@pytest.mark.parametrize("release", EACH_RELEASE)
def test_a_trace_that_machine_code_read_is_the_one_that_python_reads(
    release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVPROOF_CACHE", str(tmp_path))
    output = run_with_sglang(release, str(Path(__file__).with_name("drive_front.py")))
    assert output.splitlines()[-1] == "same"
    assert output.count(": ") == 12 and " 0 decodes" not in output


@needs_a_compiler
@pytest.mark.sglang
def test_the_scheduler_does_the_same_whatever_becomes_of_machine_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVPROOF_CACHE", str(tmp_path))
    run_with_sglang(RELEASES[1], "-c", "from kvproof.conformance.adapters.sglang import front; front.build()")
    output = run_with_sglang(RELEASES[1], str(Path(__file__).with_name("drive_captured.py")))
    assert output.splitlines()[-1] == "same"
