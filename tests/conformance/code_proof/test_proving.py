"""All functions of a target: what a process cannot answer has no verdict, and what was found out before is found again."""

from __future__ import annotations

import os
import shutil
import socket
import time
from pathlib import Path

import pytest
from small_sglang import write_sglang

from kvproof.conformance.code_proof import proving
from kvproof.conformance.code_proof.findings import Finding, names_of
from kvproof.conformance.code_proof.proving import Proving
from kvproof.conformance.code_proof.targets import targets_of
from kvproof.conformance.errors import UserError
from kvproof.model.cache import Store
from kvproof.model.code.claims import ABSENT, DIFFERS, NOT_UNDERSTOOD, PROVED, UNKNOWN
from kvproof.model.code.source import Sources

FUNCTIONS = {"finish": "_trim", "detach": "release_session"}
A_FREE_THAT_STARTS_IN_A_PAGE = ("(target + page_size - 1) // page_size", "target // page_size")


def findings(folder: Path, store: Store | None = None) -> list[Finding]:
    [target] = targets_of(str(folder))
    return Proving(target, None, store).all()


def test_each_function_is_answered_in_the_order_of_the_claims(tmp_path: Path) -> None:
    done: list[tuple[int, int]] = []
    [target] = targets_of(str(write_sglang(tmp_path)))
    found = Proving(target, None, None).all(lambda *so_far: done.append(so_far))

    assert [finding.rule for finding in found] == names_of(Sources(target.tree), None)
    assert {finding.verdict for finding in found} == {PROVED, ABSENT}
    assert done == [(number, len(found)) for number in range(len(found) + 1)]


def test_without_runs_a_difference_is_told_all_the_same_and_kept_apart(tmp_path: Path) -> None:
    store = Store(tmp_path / "kept")
    [target] = targets_of(str(write_sglang(tmp_path / "code", *A_FREE_THAT_STARTS_IN_A_PAGE)))
    for runs in (False, True):
        [found] = Proving(target, None, store, runs=runs).all(wanted=lambda name: name == "finish")
        assert found.verdict == DIFFERS and len(found.differences) >= 1
        assert any(shown.schedule for shown in found.differences) == runs


def test_a_warm_proof_asks_for_what_changed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, folder, asked = Store(tmp_path / "kept"), tmp_path / "code", tmp_path / "asked"

    def find(sources: Sources, profile: object, name: str, runs: object) -> Finding:
        """In a process of its own."""
        module = sources.module("sglang.srt.session.streaming_session")
        assert module is not None
        place = module.definition(f"StreamingSession.{FUNCTIONS[name]}")
        (asked / name).touch(exist_ok=False)
        return Finding(name, name, module.path, place.lineno if place is not None else None, PROVED)

    def names_asked(*edit: str) -> set[str]:
        asked.mkdir()
        assert {finding.verdict for finding in findings(write_sglang(folder, *edit), store)} == {PROVED}
        names = {path.name for path in asked.iterdir()}
        shutil.rmtree(asked)
        return names

    monkeypatch.setattr(proving, "find", find)
    monkeypatch.setattr(proving, "names_of", lambda *_: ["finish", "detach"])
    assert names_asked() == {"finish", "detach"}
    assert names_asked() == set()
    assert names_asked(*A_FREE_THAT_STARTS_IN_A_PAGE) == {"finish"}
    assert names_asked("class StreamingSession:", "class StreamingSession:\n    # a line more\n") == set()


def test_a_process_that_proves_opens_no_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(sources: Sources, profile: object, name: str, runs: object) -> Finding:
        socket.socket().close()
        return Finding(name, name, None, None, PROVED)

    monkeypatch.setattr(proving, "find", find)
    monkeypatch.setattr(proving, "names_of", lambda *_: ["finish"])
    [found] = findings(write_sglang(tmp_path))
    assert (found.verdict, found.open) == (NOT_UNDERSTOOD, (proving.NO_ANSWER,))


def test_a_finding_that_is_found_again_names_the_lines_of_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, folder = Store(tmp_path / "kept"), write_sglang(tmp_path / "code", *A_FREE_THAT_STARTS_IN_A_PAGE)
    monkeypatch.setattr(proving, "names_of", lambda *_: ["finish", "detach"])
    before = findings(folder, store)
    module = folder / "sglang/srt/session/streaming_session.py"
    module.write_text(module.read_text().replace("class StreamingSession:", "class StreamingSession:\n"))
    monkeypatch.setattr(proving, "find", lambda *_: pytest.fail("was asked again"))
    after = findings(folder, store)

    text = module.read_text().split("\n")
    shown = [line for finding in after for difference in finding.differences for line in difference.lines]
    assert {line.text == text[line.line - 1].strip() for line in shown if module.match(line.path)} == {True}
    assert [finding.verdict for finding in after] == [DIFFERS, PROVED]
    assert [finding.line for finding in after] == [(finding.line or 0) + 1 for finding in before]


def test_what_a_solver_did_not_know_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, folder, verdict = Store(tmp_path / "kept"), write_sglang(tmp_path / "code"), UNKNOWN

    def find(sources: Sources, profile: object, name: str, runs: object) -> Finding:
        assert sources.module("sglang.srt.session.streaming_session") is not None
        return Finding(name, name, "m.py", 1, verdict)

    monkeypatch.setattr(proving, "find", find)
    assert {finding.verdict for finding in findings(folder, store)} == {UNKNOWN}
    verdict = PROVED
    assert {finding.verdict for finding in findings(folder, store)} == {PROVED}
    verdict = DIFFERS
    assert {finding.verdict for finding in findings(folder, store)} == {PROVED}


def test_a_function_without_an_answer_at_the_deadline_has_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proving, "find", lambda *_: time.sleep(60))
    monkeypatch.setattr(proving, "names_of", lambda *_: ["finish"])
    [target] = targets_of(str(write_sglang(tmp_path)))
    assert [found.verdict for found in Proving(target, None, None, time.monotonic()).all()] == [NOT_UNDERSTOOD]


def test_a_process_that_dies_leaves_its_function_without_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = proving.find
    monkeypatch.setattr(proving, "names_of", lambda *_: ["detach", "finish", "open"])
    monkeypatch.setattr(proving, "find", lambda *asked: os._exit(9) if asked[2] == "finish" else find(*asked))
    found = {finding.rule: finding for finding in findings(write_sglang(tmp_path))}

    assert found["finish"].verdict == NOT_UNDERSTOOD
    assert "ended without an answer" in found["finish"].open[0]
    assert {finding.verdict for name, finding in found.items() if name != "finish"} == {PROVED}


BATCH = "sglang/srt/managers/schedule_batch.py"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"-" * 100_000 + b"1 < 0", "Error: "),
        (b"(", rf"{BATCH}:\d+: '\(' was never closed"),
        (b"'\xff'", f"{BATCH} is not written in UTF-8"),
        (b"'\x00'", f"{BATCH}:0: source code string cannot contain null bytes"),
    ],
    ids=["too deep", "no Python", "no text", "a null byte"],
)
def test_code_that_cannot_be_read_is_never_a_pass(text: bytes, why: str, tmp_path: Path) -> None:
    sglang, store = write_sglang(tmp_path), Store(tmp_path / "kept")
    findings(sglang, store)
    (sglang / BATCH).write_bytes((sglang / BATCH).read_bytes() + b"\nLAST = " + text + b"\n")
    with pytest.raises(UserError, match=f"cannot be read: .*{why}"):
        findings(sglang, store)


def test_a_process_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = proving.find

    def never(*asked: object) -> Finding:
        while asked[2] == "detach":
            pass
        return find(*asked)  # type: ignore[arg-type]

    monkeypatch.setattr(proving, "find", never)
    monkeypatch.setattr(proving, "MOST_SECONDS", 1.0)
    monkeypatch.setattr(proving, "names_of", lambda *_: ["detach"])

    assert [finding.verdict for finding in findings(write_sglang(tmp_path))] == [NOT_UNDERSTOOD]
