import pytest
from repository import ROOT

from kvproof.conformance.errors import at, unknown
from kvproof.conformance.exit_codes import MEANING, ExitCode


@pytest.mark.parametrize(
    ("kind", "name", "valid", "said"),
    [
        (
            "fault",
            "F22862c",
            ["F12224", "F22862a", "F22862b"],
            "unknown fault 'F22862c'; did you mean F22862b or F22862a?; valid: F12224, F22862a, F22862b",
        ),
        ("target", "vllm", ["reference"], "unknown target 'vllm'; valid: reference"),
        ("fault", "f994A", ["F994a"], "unknown fault 'f994A'; did you mean F994a?; valid: F994a"),
        ("scenario", "x", [], "unknown scenario 'x'; there is none to choose from"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_and_all_valid_ones(
    kind: str, name: str, valid: list[str], said: str
) -> None:
    assert unknown(kind, name, valid).message == str(unknown(kind, name, valid)) == said


def test_a_place_is_clickable() -> None:
    assert at("t.jsonl", 7) == "t.jsonl:7"
    assert at("t.jsonl") == "t.jsonl"


def test_exit_codes_are_the_documented_ones_and_each_is_explained() -> None:
    assert [code.value for code in ExitCode] == [0, 1, 2, 3, 130]
    assert set(MEANING) == set(ExitCode)


def test_the_page_of_green_results_explains_the_exit_codes_in_the_same_words() -> None:
    page = (ROOT / "docs" / "trust.md").read_text()
    for code, meaning in MEANING.items():
        assert f"| {code.value} | {meaning} |" in page
