"""Verdicts of the referee where they are known, and what it says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from referee import __main__ as command
from referee.cases import Edit, Variant
from referee.forked import answers
from referee.judging import CASES, CONFORMS, INCOMPLETE, PROVED, REFUSED, REFUTED, UNKNOWN, VIOLATES, Judge, Verdict
from referee.results_page import report
from referee.traces.bases import BASES, Bases
from repository import ROOT

from kvproof.model.cache_folder import cache_folder

FOUND = Verdict(REFUTED, "I1")
HARMFUL = Variant("leaks", "a topic", "A page leaks.", "I1", {"decode": lambda d, s, p: None})
HARMLESS = Edit("renamed", "a topic", "Other names.", "", "sessions")


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    folder = tmp_path_factory.mktemp("referee")
    bases = Bases(folder / "bases")
    bases.record()
    return Judge(folder, cache_folder(), bases)


@pytest.mark.parametrize(
    ("name", "verdict", "by"),
    [
        ("finish_frees_twice", REFUTED, "I4"),
        ("decode_never", REFUSED, "can never happen"),
        ("decode_written_out", PROVED, ""),
        ("every_finish_closes", REFUTED, "I15"),
        ("free_twice_in_one_call", VIOLATES, "I16"),
        ("end_left_out", INCOMPLETE, "no terminal record"),
        ("format_of_tomorrow", REFUSED, "format 2"),
        ("pages_permuted", CONFORMS, ""),
        ("real_turns_renamed", CONFORMS, ""),
    ],
)
def test_a_case_is_judged_by_the_command_line(judge: Judge, name: str, verdict: str, by: str) -> None:
    answer = judge.verdict(CASES[name])
    assert answer.verdict == verdict
    assert by in answer.by
    assert answer.is_right(CASES[name])


def test_a_harmful_case_is_found_unless_it_passes_or_does_not_run() -> None:
    right = {REFUTED, VIOLATES, INCOMPLETE, REFUSED}
    for verdict in (PROVED, CONFORMS, UNKNOWN, *right):
        assert Verdict(verdict).is_right(HARMFUL) == (verdict in right)
    assert not Verdict(REFUSED, "leaks.py:9: NameError: name 'x' is not defined").is_right(HARMFUL)
    assert Verdict(REFUSED, "leaks.py:9: decode can never happen").is_right(HARMFUL)


def test_a_harmless_case_must_pass() -> None:
    for verdict in (REFUTED, VIOLATES, INCOMPLETE, REFUSED, UNKNOWN):
        assert not Verdict(verdict).is_right(HARMLESS)
    assert Verdict(CONFORMS).is_right(HARMLESS)
    assert Verdict(PROVED).is_right(HARMLESS)


def test_what_is_not_found_comes_first() -> None:
    told = report([HARMLESS, HARMFUL], {"leaks": Verdict(PROVED), "renamed": Verdict(CONFORMS)})
    assert told.wrong == ("leaks",)
    assert "| harmful, found | 0 of 1 | 0 of 0 | **0 of 1** |" in told.text
    assert "| a topic | rules | 0 of 1 |" in told.text
    assert "| a topic | traces | 1 of 1 |" in told.text
    assert told.text.index("NOT FOUND: 1") < told.text.index("`leaks`") < told.text.index("`renamed`")
    assert "**proved**" in told.text


def test_a_harmless_case_that_does_not_pass_is_told() -> None:
    told = report([HARMLESS, HARMFUL], {"leaks": FOUND, "renamed": Verdict(VIOLATES, "event 3")})
    assert told.wrong == ("renamed",)
    assert "NOT PASSED: 1" in told.text
    assert "Nothing: every harmful case is found." in told.text


def _answer(question: int) -> int:
    while question < 0:
        pass
    if question == 0:
        raise ValueError("no answer")
    return question * 2


def test_answers_come_from_processes_and_none_where_one_dies(capfd: pytest.CaptureFixture[str]) -> None:
    assert dict(answers(_answer, [1, 0, 3, -1], cpu_seconds=1)) == {1: 2, 0: None, 3: 6, -1: None}
    assert "ValueError: no answer" in capfd.readouterr().err


def ask(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["referee", *map(str, arguments)])
    return command.main()


def test_the_command_keeps_its_verdicts_and_fails_where_one_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bases = {name: BASES[name] for name in ("sessions", "checked")}
    monkeypatch.setattr("referee.traces.bases.BASES", bases)
    assert ask(monkeypatch, "free_left_out", "pages_permuted", "--folder", tmp_path) == 0
    assert "**1 of 1**" in capsys.readouterr().out
    kept = tmp_path / "verdicts.json"
    kept.write_text(kept.read_text().replace(VIOLATES, CONFORMS))
    assert ask(monkeypatch, "free_left_out", "--folder", tmp_path) == 1
    assert "NOT FOUND: 1" in capsys.readouterr().out


def test_a_case_whose_text_changed_is_judged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def remember(self: Judge, case: Any) -> Verdict:
        asked.append(case.name)
        return FOUND

    def in_turn(ask: Any, questions: Any, cpu_seconds: int) -> Any:
        return ((question, ask(question)) for question in questions)

    monkeypatch.setattr(Judge, "verdict", remember)
    monkeypatch.setattr(Bases, "record", lambda self: None)
    monkeypatch.setattr(command, "answers", in_turn)
    for text in ("one", "one", "another"):
        monkeypatch.setattr(Judge, "text", lambda self, case, text=text: text)
        command.verdicts([HARMFUL], tmp_path)
    assert asked == ["leaks", "leaks"]


def test_an_unknown_case_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ask(monkeypatch, "no_such_case")
    assert "no such case: no_such_case" in capsys.readouterr().err


def test_the_page_has_every_case_and_no_other() -> None:
    """Verdicts take minutes; `make referee` writes them. What is compared here: the page is of these cases."""
    page = (ROOT / "docs" / "referee.md").read_text(encoding="utf-8").partition("## Variants of rules")[2]
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `")]
    assert [(row[0].strip("| `"), row[2]) for row in rows] == [
        (case.name, case.why.replace("|", "\\|")) for case in CASES.values()
    ]
