"""What is said of a function: its verdict, what it follows instead, and one path of each difference in numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_batch import write_batch
from small_sglang import write_sglang

from kvproof.conformance.code_proof import findings
from kvproof.conformance.code_proof.findings import Finding, find, small_runs, word_of
from kvproof.model.code.claims import ABSENT, DIFFERS, NOT_UNDERSTOOD, PROVED
from kvproof.model.code.source import Folder, Sources
from kvproof.model.oracle import Oracle
from kvproof.spec.machine import LEDGER
from kvproof.spec.profiles import PROFILES

ENDS_A_RETRACT = ("        if is_insert:", "        if True:")


def found(folder: Path, name: str, profile: str | None = None) -> Finding:
    rules = PROFILES[profile] if profile else None
    return find(Sources(Folder(folder)), rules, name, small_runs(rules))


def test_a_function_that_follows_its_rule_has_no_difference(tmp_path: Path) -> None:
    finding = found(write_sglang(tmp_path), "match_slot")

    assert finding.verdict == PROVED and not finding.differences and not finding.open
    assert (finding.path, finding.function) == (
        "sglang/srt/session/streaming_session.py",
        "StreamingSession.match_prefix",
    )
    assert finding.paths > 1 and finding.questions > 1 and finding.assumes
    assert finding.understood == finding.paths
    assert {"StreamingSession.match_prefix", "StreamingSession._trim", "StreamingSession._free"} <= {
        ran.rpartition(":")[2] for ran in finding.ran
    }


@pytest.mark.parametrize(("profile", "word"), [(None, DIFFERS), ("sglang-0.5.17", "known fault S0511a")])
def test_a_known_fault_is_one_by_the_profile_of_the_release_alone(
    tmp_path: Path, profile: str | None, word: str
) -> None:
    finding = found(write_sglang(tmp_path, *ENDS_A_RETRACT), "retract", profile)

    assert word_of(finding) == word
    assert finding.instead == "S0511a"


def test_the_rule_of_another_release_is_named(tmp_path: Path) -> None:
    rounded = (
        "\n        if req.kv.swa_evicted_seqlen > prefix_len:\n"
        "            prefix_len = prefix_len // self.inner.page_size * self.inner.page_size\n"
    )
    trimmed = "        self._trim(req.kv, prefix_len)\n"
    finding = found(write_sglang(tmp_path, trimmed, rounded + trimmed), "match_slot")

    assert finding.verdict == DIFFERS
    assert finding.instead == "the rule of sglang-0.5.19"


def test_a_rule_that_applies_in_more_states_is_named_where_the_function_follows_it_there(tmp_path: Path) -> None:
    keeps_no_page_more = ("pre_len - window - page_size", "pre_len - window")
    finding = found(write_batch(tmp_path, *keeps_no_page_more), "evict_window")

    assert finding.verdict == DIFFERS
    assert finding.instead == "the rule of sglang-0.5.10"


@pytest.fixture(scope="module")
def cuts_a_page(tmp_path_factory: pytest.TempPathFactory) -> Finding:
    """A finish that frees the page which still holds kept tokens."""
    edit = ("(target + page_size - 1) // page_size", "target // page_size")
    return found(write_sglang(tmp_path_factory.mktemp("sglang"), *edit), "finish")


def test_a_difference_has_a_state_and_the_path_that_the_code_takes_in_it(cuts_a_page: Finding) -> None:
    finding = cuts_a_page
    [shown] = [shown for shown in finding.differences if shown.sentence == "the same pages are left behind the row"]

    assert shown.state["P"] > 1
    assert int(shown.code) == int(shown.rule) - 1
    target = next(note for line in shown.lines for note in line.notes if note.startswith("finished_len = "))
    assert target.removeprefix("finished_len = ").isdigit()
    assert {line.path for line in shown.lines} >= {finding.path}
    assert all(note.partition(" ")[0] in line.text for line in shown.lines for note in line.notes if " = " in note)
    assert "start < end: yes" in {note for line in shown.lines for note in line.notes}


def test_the_state_of_a_difference_is_that_before_the_last_action_of_its_run(cuts_a_page: Finding) -> None:
    shown = cuts_a_page.differences[0]

    oracle = Oracle.of(shown.state["P"], shown.state["row_width"], overlap=bool(shown.state["overlap"]))
    *before, last = shown.schedule
    state = LEDGER.start(oracle.d)
    for call in before:
        outcome = oracle.step(LEDGER.actions[call.action], state, call.params)
        assert not outcome.failed_guards
        state = outcome.after
    assert last.action == "finish" and LEDGER.actions["finish"].applies(oracle.d, state)
    lengths = {name: value for name, value in shown.state.items() if hasattr(state, name)}
    assert lengths == {name: getattr(state, name) for name in lengths} and len(lengths) > 10
    kept = last.params["finished_len"] + state.origin_len
    assert kept % oracle.d.page_size and "finished_len = {}".format(last.params["finished_len"]) in {
        note for line in shown.lines for note in line.notes
    }


def test_a_difference_that_no_short_run_reaches_has_no_schedule_and_comes_last(tmp_path: Path) -> None:
    trimmed = "        kv.swa_evicted_seqlen = min(kv.swa_evicted_seqlen, target)\n"
    far = (
        "        if kv.swa_evicted_seqlen > self.inner.page_size + self.inner.page_size:\n"
        "            kv.kv_committed_len = kv.swa_evicted_seqlen\n"
    )
    near = "        kv.kv_allocated_len = target\n"
    finding = found(write_sglang(tmp_path / "both", trimmed, trimmed + far + near), "finish")
    assert [bool(shown.schedule) for shown in finding.differences] == [True, False]
    assert finding.differences[1].state["row_width"] > 2 * finding.differences[1].state["P"]


def test_no_run_is_looked_for_where_the_function_follows_its_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(findings, "reached")

    assert found(write_sglang(tmp_path), "retract").verdict == PROVED


def test_what_is_not_understood_is_named_with_its_line(tmp_path: Path) -> None:
    trim = "        self._trim(req.kv, prefix_len)\n"
    finding = found(write_sglang(tmp_path, trim, f"        exec('pass')\n{trim}"), "match_slot")

    assert finding.verdict == NOT_UNDERSTOOD
    assert any("streaming_session.py:" in reason and "exec" in reason for reason in finding.open)


def test_a_function_that_is_not_there_is_absent(tmp_path: Path) -> None:
    finding = found(write_sglang(tmp_path, "def cache_finished_req", "def cache_finished_request"), "finish")

    assert (finding.verdict, finding.path, finding.line) == (ABSENT, None, None)
