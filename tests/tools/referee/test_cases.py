"""The cases of the referee: enough of each kind, each with a reason, each a change of something that is right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from referee import traces, variants
from referee.cases import Edit, Edits, Variant, Variants, reason_of
from referee.judging import CASES
from referee.traces import EDITS
from referee.traces.bases import BASES, Bases
from referee.traces.trace import Trace
from referee.variant_files import text_of
from referee.variants import VARIANTS

from kvproof.conformance.cli.variant import load_variant
from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.replay import CONFORMS, VIOLATES, replay
from kvproof.spec.actions import ACTIONS


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Bases:
    recorded = Bases(tmp_path_factory.mktemp("bases"))
    recorded.record()
    return recorded


def test_there_are_as_many_of_each_kind_as_were_asked_for() -> None:
    assert sum(variant.harmful for variant in VARIANTS.values()) >= 60
    assert sum(not variant.harmful for variant in VARIANTS.values()) >= 20
    assert sum(edit.harmful for edit in EDITS.values()) >= 80
    assert sum(not edit.harmful for edit in EDITS.values()) >= 20


def test_no_two_cases_have_one_name() -> None:
    assert len(CASES) == sum(map(len, variants.TOPICS)) + sum(map(len, traces.TOPICS))


def test_a_case_without_a_reason_is_refused() -> None:
    def without_a_reason() -> None:
        pass

    with pytest.raises(ValueError, match="no docstring"):
        reason_of(without_a_reason)


REFUSED = re.compile("is a ghost field: |no effect is named")
"""Rules that claim what is true, and effects of their own."""


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=lambda variant: variant.name)
def test_a_variant_is_a_file_that_replaces_what_it_says(variant: Variant, tmp_path: Path) -> None:
    path = tmp_path / f"{variant.name}.py"
    path.write_text(text_of(variant), encoding="utf-8")
    assert "referee" not in path.read_text(encoding="utf-8")
    assert set(variant.rules) <= set(ACTIONS)
    try:
        replaced = load_variant(path).replaced
    except UserError as refused:
        assert variant.harmful and REFUSED.search(str(refused))
    else:
        assert list(replaced) == list(variant.rules)


def test_the_right_traces_conform_and_those_with_a_bug_do_not(bases: Bases, tmp_path: Path) -> None:
    for name in BASES:
        path = tmp_path / "right.jsonl"
        path.write_text(bases.right(name), encoding="utf-8")
        wanted = VIOLATES if " with " in name else CONFORMS
        assert (name, replay(path, profile=bases.profile(name)).verdict) == (name, wanted)


def test_every_edit_changes_its_trace(bases: Bases) -> None:
    assert all(bases.edited(edit) != bases.right(edit.base) for edit in EDITS.values())


def test_an_edit_that_changes_nothing_is_refused(bases: Bases) -> None:
    idle = Edit("idle", "none", "none", "I1", "checked", lambda trace: None)
    with pytest.raises(ValueError, match="idle changes nothing"):
        bases.edited(idle)


def test_an_edit_that_finds_no_event_is_refused(bases: Bases) -> None:
    trace = Trace(bases.right("checked"))
    with pytest.raises(LookupError, match="no such event: retract"):
        trace.first("retract")
    with pytest.raises(LookupError, match="no event has swa"):
        trace.forget("swa")


def test_what_is_removed_or_inserted_is_counted_anew(bases: Bases) -> None:
    trace = Trace(bases.right("checked"))
    trace.remove(trace.all("check")[0])
    trace.repeat(trace.first("match"))
    trace.repeat(trace.first("match"))
    again = Trace(trace.text())
    assert [event["seq"] for event in again.events] == list(range(len(again.events)))
    assert again.end is not None
    assert again.end["events"] == len(again.events) == len(Trace(bases.right("checked")).events) + 1


def test_the_docstring_is_the_reason_and_the_function_the_name() -> None:
    rules, edits = Variants("rules"), Edits("edits")

    @rules.wrong("decode", must="I1")
    def leaks(d: object, s: object, p: object) -> None:
        """A page
        leaks."""

    @edits.right("checked")
    def same(trace: Trace) -> None:
        """The same."""

    assert (rules["leaks"].why, rules["leaks"].must, rules["leaks"].harmful) == ("A page leaks.", "I1", True)
    assert (edits["same"].why, edits["same"].topic, edits["same"].harmful) == ("The same.", "edits", False)
