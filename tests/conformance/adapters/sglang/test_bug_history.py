"""The table of bugs says what was recorded of the releases, and the command says whether it is still so."""

from __future__ import annotations

import json
import re
from pathlib import Path
from unittest.mock import Mock

import bug_history
import pytest
from bug_history import TABLE, NotShownError, Shown, lines_of, row_of, rows_of, table, with_run
from bugs_of_sglang import BUGS, NEWEST, Bug, Function, Scenario, Schedule, Script
from install_apart import site_of
from packaging.version import Version
from repository import DOCS

from kvproof.conformance.adapters.sglang.releases import RELEASES

HERE = Path(__file__).parent
FINDINGS = json.loads((HERE / "findings.json").read_text())
VERDICTS = json.loads((HERE / "verdicts.json").read_text())
KNOWN = [known.version for known in RELEASES]
PLAYED_ALONE = [
    bug
    for bug in BUGS
    if isinstance(bug.shown_by, Schedule) or (isinstance(bug.shown_by, Scenario) and bug.shown_by.settings)
]
"""A schedule, or a scenario with settings of its own, is not among the runs of each release that are kept."""
RECORDED = [bug for bug in BUGS if bug not in PLAYED_ALONE]
NAMED = [f"{bug.name}, {bug.there}" for bug in BUGS]


def differs_in(release: str, rule: str, statement: str) -> bool:
    """Whether docs/code_releases.md says so. It cuts long lists: "3 more"."""
    of_release = (DOCS / "code_releases.md").read_text().partition(f"### {release}\n")[2].partition("\n### ")[0]
    found = re.search(rf"^- `{re.escape(rule)}` .*$", of_release, re.MULTILINE)
    return found is not None and (statement in found[0] or found[0].endswith(" more."))


@pytest.mark.parametrize("bug", RECORDED, ids=[f"{bug.name}, {bug.there}" for bug in RECORDED])
def test_each_row_is_what_was_recorded_of_its_releases(bug: Bug) -> None:
    def is_in(release: str) -> bool:
        match bug.shown_by:
            case Script(name, statement):
                return bool(FINDINGS[release][name].get(statement, False))
            case Scenario(name, fault):  # without settings
                return bool(VERDICTS[release][name][str(bug_history.PAGE_SIZE)] == f"violates: {fault}")
            case Function(rule, statement):
                return differs_in(release, rule, statement)

    seen = {release: is_in(release) for release in (bug.there, bug.gone) if release}
    assert seen == {bug.there: True} | ({bug.gone: False} if bug.gone else {})


@pytest.mark.parametrize("bug", BUGS, ids=NAMED)
def test_it_is_gone_in_the_next_known_release_or_still_in_the_newest(bug: Bug) -> None:
    assert KNOWN[-1] == NEWEST
    behind = [known for known in KNOWN if Version(known) > Version(bug.there)]
    assert bug.gone == (behind[0] if behind else None)


def test_the_page_has_a_row_for_each() -> None:
    assert len(BUGS) >= 30
    assert list(rows_of(TABLE.read())) == [row_of(bug) for bug in BUGS]


def test_a_run_writes_its_own_rows_and_leaves_the_others() -> None:
    first, second, *_ = BUGS
    page = table({row_of(first): "1 | abc, 2026-01-01", "a bug that is none": "1 | abc, 2026-01-01"})
    page = with_run(page, [Shown(second, (bug_history.Seen(second.there, True, "", 2.2),))], "def, 2026-02-02")
    assert rows_of(page) == {row_of(first): "1 | abc, 2026-01-01", row_of(second): "2 | def, 2026-02-02"}


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Instead of the real page, which no test writes. Nothing is installed."""
    page = Mock()
    page.read.return_value = TABLE.read()
    monkeypatch.setattr(bug_history, "TABLE", page)
    monkeypatch.setattr(bug_history, "make", Mock())
    monkeypatch.setattr(bug_history, "install", Mock())
    return page


def run(monkeypatch: pytest.MonkeyPatch, name: str, is_there: Mock) -> int:
    monkeypatch.setattr(bug_history, "_is_there", is_there)
    monkeypatch.setattr("sys.argv", ["bug_history.py", name, "--write"])
    return bug_history.main()


@pytest.mark.usefixtures("page")
@pytest.mark.parametrize(("seen", "code"), [((True, False), 0), ((False, False), 1), ((True, True), 1)])
def test_a_bug_that_is_not_as_the_table_says_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seen: tuple[bool, bool], code: int
) -> None:
    assert run(monkeypatch, "#25126", Mock(side_effect=[(is_there, "") for is_there in seen])) == code
    assert ("NOT AS THE TABLE SAYS" in capsys.readouterr().out) == bool(code)


@pytest.mark.usefixtures("page")
def test_what_cannot_be_asked_and_a_name_of_nothing_end_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "near_the_pool", Mock(side_effect=NotShownError("no answer"))) == 2
    assert run(monkeypatch, "1", Mock()) == 2
    assert "valid: all, 22862" in capsys.readouterr().err
    monkeypatch.setattr(bug_history, "install", Mock(side_effect=RuntimeError("pip cannot install sglang==0.5.18")))
    assert run(monkeypatch, "36081", Mock()) == 2
    assert capsys.readouterr().err == "error: pip cannot install sglang==0.5.18\n"


def test_the_page_is_written_only_if_all_is_as_the_table_says(monkeypatch: pytest.MonkeyPatch, page: Mock) -> None:
    assert run(monkeypatch, "all", Mock(return_value=(True, ""))) == 1  # nothing is gone anywhere
    assert not page.write.called
    assert run(monkeypatch, "all", Mock(side_effect=lambda bug, release: (release == bug.there, ""))) == 0
    assert page.write.called


def test_a_function_that_is_absent_or_not_understood_is_not_called_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    for verdict, left_open in (("absent", ()), ("differs", ("a path is not understood",))):
        finding = Mock(verdict=verdict, differences=(), open=left_open)
        monkeypatch.setattr(bug_history, "_proof", Mock(return_value=finding))
        with pytest.raises(NotShownError):
            bug_history._by_function(NEWEST, "finish", "a statement")


def test_what_is_seen_stands_below_what_happens() -> None:
    bug = next(bug for bug in BUGS if bug.gone is None)
    shown = Shown(bug, (bug_history.Seen(bug.there, True, "a sentence", 3.2),))
    assert list(lines_of(shown))[1:] == [f"  SGLang {bug.there}: there (3 s): a sentence"]


@pytest.mark.sglang
def test_a_scenario_a_script_and_a_function_show_theirs() -> None:
    """One of each kind, on the releases that are always installed."""
    kinds = {
        type(bug.shown_by): bug for bug in reversed(BUGS) if {bug.there, bug.gone} <= {"0.5.10.post1", "0.5.11", None}
    }
    newest = next(bug for bug in BUGS if isinstance(bug.shown_by, Script) and bug.there == NEWEST)
    for bug in (*kinds.values(), newest):
        assert bug_history.shown(bug).is_as_said, bug.name


@pytest.mark.sglang_full
@pytest.mark.parametrize("bug", PLAYED_ALONE, ids=lambda bug: bug.name)
def test_what_is_played_alone_shows_its_bug(bug: Bug) -> None:
    if not site_of(bug.there).exists():
        pytest.skip(f"no SGLang {bug.there}: run `make history BUG={bug.name}`")
    assert bug_history.shown(bug).is_as_said


@pytest.mark.sglang
def test_a_schedule_finds_nothing_in_the_newest_release() -> None:
    for schedule in (bug.shown_by for bug in BUGS if isinstance(bug.shown_by, Schedule)):
        assert bug_history._by_schedule(NEWEST, schedule) == (False, "the trace conforms")
