"""The target as a user meets it, where no checkout of sglang-jax is named or jax is missing."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from kvproof.conformance.adapters.scenarios import TARGETS, scenarios_of
from kvproof.conformance.adapters.sglang_jax.checkout import CHECKOUT
from kvproof.conformance.adapters.sglang_jax.record import record_scenario, settings_for
from kvproof.conformance.adapters.sglang_jax.scenarios import SCENARIOS
from kvproof.conformance.errors import UserError


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like a checkout and holds nothing."""
    (tmp_path / "python" / "sgl_jax").mkdir(parents=True)
    monkeypatch.setenv(CHECKOUT, str(tmp_path))
    return tmp_path


def test_the_scenarios_are_listed_without_a_checkout_and_without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CHECKOUT, raising=False)
    summaries = scenarios_of("sglang-jax")
    assert "overtaken" in summaries and all(summaries.values())
    assert not [name for name in sys.modules if name.startswith("sgl_jax")]


def test_recording_without_a_checkout_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CHECKOUT, raising=False)
    with pytest.raises(UserError, match=f"set {CHECKOUT} to a work tree"):
        record_scenario("plain", tmp_path / "t.jsonl")
    assert not (tmp_path / "t.jsonl").exists()


def test_a_folder_that_is_no_checkout_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CHECKOUT, str(tmp_path))
    with pytest.raises(UserError, match="holds no python/sgl_jax"):
        record_scenario("plain", tmp_path / "t.jsonl")


def test_without_jax_the_environment_to_make_is_named(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "jax" else find(name, *a))
    with pytest.raises(UserError, match="needs jax, which is not installed"):
        record_scenario("plain", checkout / "t.jsonl")


def test_an_unknown_scenario_is_answered_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="overtaken"):
        record_scenario("overtakn", tmp_path / "t.jsonl")


@pytest.mark.parametrize(
    "settings, answer",
    [
        ({"pool": 1}, "pool_tokens"),
        ({"pool_tokens": 31}, "no multiple of page_size 4"),
        ({"page_size": "four"}, "setting page_size of sglang-jax: .* valid integer, found 'four'"),
    ],
)
def test_a_wrong_setting_is_refused(settings: dict[str, Any], answer: str) -> None:
    with pytest.raises(UserError, match=answer):
        settings_for(SCENARIOS["plain"], 4, 0, settings)


def test_chunks_windows_and_pools_grow_with_the_page() -> None:
    small, large = (settings_for(SCENARIOS["many-chunks"], page_size, 0, {}) for page_size in (4, 16))
    assert small.chunked_prefill_size is not None and large.chunked_prefill_size == 4 * small.chunked_prefill_size
    assert large.pool_tokens == 4 * small.pool_tokens
    assert settings_for(SCENARIOS["window"], 4, 0, {}).window == 4 * SCENARIOS["window"].window_pages


def test_the_target_names_where_its_environment_is_described() -> None:
    assert Path(__file__).resolve().parents[4].joinpath("docs", "sglang-jax.md").exists()
    assert "docs/sglang-jax.md" in TARGETS["sglang-jax"].install
