import pytest
from repository import ROOT

from kvproof.conformance.errors import UserError, at, unknown
from kvproof.conformance.exit_codes import MEANING, ExitCode


def test_an_unknown_name_is_answered_with_the_nearest_and_all_valid_ones() -> None:
    message = unknown("fault", "F22862c", ["F12224", "F22862a", "F22862b"]).message
    assert message == ("unknown fault 'F22862c'; did you mean F22862b or F22862a?; valid: F12224, F22862a, F22862b")


def test_a_name_near_to_nothing_gets_no_suggestion() -> None:
    assert unknown("target", "vllm", ["reference"]).message == "unknown target 'vllm'; valid: reference"


def test_letter_case_is_no_difference() -> None:
    assert "did you mean F994a?" in unknown("fault", "f994A", ["F994a", "F17850"]).message


def test_an_empty_table_is_said_to_be_empty() -> None:
    assert unknown("scenario", "x", []).message == "unknown scenario 'x'; there is none to choose from"


def test_a_place_is_clickable() -> None:
    assert at("t.jsonl", 7) == "t.jsonl:7"
    assert at("t.jsonl") == "t.jsonl"


def test_the_message_is_the_text_of_the_exception() -> None:
    with pytest.raises(UserError, match="no such file"):
        raise UserError("no such file")


def test_exit_codes_are_the_documented_ones_and_each_is_explained() -> None:
    assert [code.value for code in ExitCode] == [0, 1, 2, 3, 130]
    assert set(MEANING) == set(ExitCode)


def test_the_readme_explains_the_exit_codes_in_the_same_words() -> None:
    readme = (ROOT / "README.md").read_text()
    for code, meaning in MEANING.items():
        assert f"| {code.value} | {meaning} |" in readme
