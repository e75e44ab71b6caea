import pytest

from kvproof.conformance.report import terminal
from kvproof.conformance.report.terminal import Progress, complain, print_table, say


def test_a_short_run_says_nothing_about_its_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("recording") as progress:
        progress.show("1 event")
    assert capsys.readouterr() == ("", "")


def test_a_long_run_says_how_far_it_is_on_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "SILENT_SECONDS", 0.0)
    with Progress("recording reference") as progress:
        progress.show("100 events")
        progress.show("101 events")  # too soon after the first
    assert capsys.readouterr() == ("", "recording reference: 100 events\n")


def test_a_quiet_run_says_nothing_at_all(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "SILENT_SECONDS", 0.0)
    with terminal.verbosity(verbose=False, quiet=True), Progress("recording") as progress:
        progress.show("100 events")
        terminal.tell("recorded")
    assert capsys.readouterr() == ("", "")


def test_what_is_said_is_neither_wrapped_nor_read_as_markup(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    say("frees row [ceil(8,P), 12) of [bold]s1[/bold]")
    complain("/a/very/long/path/that/is/clicked.jsonl:3: not [JSON]")
    assert capsys.readouterr() == (
        "frees row [ceil(8,P), 12) of [bold]s1[/bold]\n",
        "error: /a/very/long/path/that/is/clicked.jsonl:3: not [JSON]\n",
    )


def test_a_table_in_a_pipe_is_whole_lines_with_tabs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    print_table(("id", "statement"), [("I1", "every page that is not free has exactly one owner")])
    assert capsys.readouterr().out == "I1\tevery page that is not free has exactly one owner\n"
