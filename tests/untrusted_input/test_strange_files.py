"""Files of every kind, spoilt at random: each is taken or refused in one sentence, and where that is not so it is noticed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import strange_files
from strange_files import KINDS, promise, spoilt

from kvproof.conformance.fuzz import campaign_state
from kvproof.conformance.gate import golden_traces
from kvproof.conformance.replay import checkpoint, serialization
from kvproof.conformance.traces import data_file


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return {name: kind.example(tmp_path_factory.mktemp(name)) for name, kind in KINDS.items()}


Broken = Callable[..., Exception | None]


@pytest.fixture
def broken_promise(examples: dict[str, bytes], tmp_path: Path) -> Broken:
    """The first in so many spoilt files of a kind, if there is one."""

    def first_broken(name: str, tries: int, seed: int = 0) -> Exception | None:
        rng, kind = random.Random(seed), KINDS[name]
        for _ in range(tries):
            try:
                promise(kind, spoilt(examples[name], kind.is_json, rng), tmp_path)
            except Exception as error:
                return error
        return None

    return first_broken


@pytest.mark.parametrize("name", KINDS)
def test_an_example_is_taken(name: str, examples: dict[str, bytes], tmp_path: Path) -> None:
    assert promise(KINDS[name], examples[name], tmp_path)


@pytest.mark.parametrize(("tries", "seed"), [(40, 0), pytest.param(600, 1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", KINDS)
def test_a_spoilt_file_is_taken_or_refused(name: str, tries: int, seed: int, broken_promise: Broken) -> None:
    assert not broken_promise(name, tries, seed)


def test_a_file_outside_its_folder_is_noticed(tmp_path: Path) -> None:
    def escapes(_: bytes, folder: Path) -> None:
        (folder / "../there").touch()

    with pytest.raises(AssertionError, match="outside"):
        promise(strange_files.Kind(KINDS["name"].example, escapes), b"", tmp_path)


@pytest.mark.parametrize(
    ("name", "module", "attribute", "mistake"),
    [
        ("schedule", "kvproof.conformance.fuzz.schedule", "ValidationError", KeyError),
        ("campaign", campaign_state.__name__, "WRONG_SHAPE", (KeyError,)),
        ("checkpoint", checkpoint.__name__, "WRONG_SHAPE", (KeyError,)),
        ("slice", "kvproof.conformance.replay.begin", "WRONG_SHAPE", (KeyError,)),
        ("mooncake", "kvproof.conformance.adapters.workload", "_require_number", lambda *_: None),
        ("azure", "kvproof.conformance.adapters.workload", "_azure_count", lambda *of: int(of[3])),
        ("expected", golden_traces.__name__, "ValidationError", KeyError),
        ("accepted", "kvproof.conformance.gate.needs", "UnicodeDecodeError", KeyError),
        ("answer", "kvproof.model.cache", "suppress", lambda *_: strange_files.suppress()),
        ("name", "kvproof.conformance.report.explain.page", "escape", str),
    ],
)
def test_a_mistake_in_a_reader_is_found(
    name: str, module: str, attribute: str, mistake: object, broken_promise: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{module}.{attribute}", mistake, raising=False)
    assert broken_promise(name, 400)


def test_what_is_shared_is_what_the_readers_use() -> None:
    assert campaign_state.WRONG_SHAPE is checkpoint.WRONG_SHAPE is data_file.WRONG_SHAPE
    assert serialization.whole_number is data_file.whole_number
