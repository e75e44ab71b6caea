"""What the adapter can say without SGLang: its tables, and the answers to a user's mistakes."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import torch

from kvproof.conformance.adapters import stand_ins
from kvproof.conformance.adapters.sglang.record import record_scenario, settings_for
from kvproof.conformance.adapters.sglang.releases import RELEASES, installed_version, release_of
from kvproof.conformance.adapters.sglang.scenarios import SCENARIOS
from kvproof.conformance.adapters.sglang.seams import SEAMS
from kvproof.conformance.errors import UserError

FOUND = {seam.name: seam.ways[0] for seam in SEAMS}


def test_every_scenario_has_a_summary_of_one_line() -> None:
    assert all(scenario.summary and "\n" not in scenario.summary for scenario in SCENARIOS.values())


def test_unknown_scenario_is_answered_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean retract"):
        record_scenario("retrct", tmp_path / "t.jsonl")


def test_a_release_without_a_needed_seam_is_answered_with_what_is_there_and_what_is_not() -> None:
    with pytest.raises(UserError) as refused:
        release_of("9.9.9", {**FOUND, "session_cache": None})
    assert "session_cache (the cache layer" in refused.value.message
    assert "row: kv.req_pool_idx" in refused.value.message


def test_an_unknown_release_is_driven_by_what_it_has_and_names_the_rest() -> None:
    release = release_of("9.9.9", {**FOUND, "marker": None})
    assert release.marker is None and release.known_deviations == ()
    assert "9.9.9" in release.gaps[0] and any("in-flight marker" in gap for gap in release.gaps)


def test_a_known_release_has_what_is_known_of_it() -> None:
    found = {seam.name: seam.ways[-1] for seam in SEAMS}
    for known in RELEASES:
        release = release_of(known.version, found)
        assert release.known_deviations == known.known_deviations
        assert set(known.gaps) <= set(release.gaps)


def test_without_sglang_the_answer_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_installed(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", nothing_installed)
    with pytest.raises(UserError, match="make test-sglang"):
        installed_version()


def test_settings_that_are_no_settings_are_refused() -> None:
    with pytest.raises(UserError, match="did you mean pool_tokens"):
        settings_for(SCENARIOS["basic"], 4, 0, {"pool_token": 64})
    with pytest.raises(UserError, match=r"setting pool_tokens of sglang: .* valid integer, found 'many'"):
        settings_for(SCENARIOS["basic"], 4, 0, {"pool_tokens": "many"})
    with pytest.raises(UserError, match=r"setting overlap of sglang: .* valid boolean"):
        settings_for(SCENARIOS["basic"], 4, 0, {"overlap": 1})
    with pytest.raises(UserError, match="chunked_prefill_size 10 is no multiple of page_size 4"):
        settings_for(SCENARIOS["basic"], 4, 0, {"chunked_prefill_size": 10})


def test_settings_come_from_the_page_size_then_the_scenario_then_the_user() -> None:
    settings = settings_for(SCENARIOS["matrix-window-overlap"], 1, 0, {"page_size": 16, "chunked_prefill_size": 64})
    assert (settings.page_size, settings.chunked_prefill_size, settings.window, settings.overlap) == (16, 64, 16, True)
    assert settings.pool_tokens == 64 * 16
    assert settings_for(SCENARIOS["matrix-full"], 1, 0, {"page_size": 16}).chunked_prefill_size == 16


@pytest.mark.parametrize("page_size", [1, 3, 4, 256])
def test_chunks_and_pools_are_whole_pages(page_size: int) -> None:
    settings = settings_for(SCENARIOS["storm"], page_size, 0, {})
    assert settings.chunked_prefill_size and settings.chunked_prefill_size % page_size == 0
    assert settings.pool_tokens % page_size == 0


@pytest.fixture
def stand_ins_in_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    stand_ins.install(("gpu_only_package", "colorsys"))
    yield
    for name in [name for name in sys.modules if name.startswith("gpu_only_package")]:
        del sys.modules[name]


@pytest.mark.usefixtures("stand_ins_in_place")
class TestStandIns:
    def test_answer_imports_at_any_depth(self) -> None:
        module = importlib.import_module("gpu_only_package.deep.down")
        assert module.Thing.Nested is not None

    def test_answer_no_question_whether_they_are_there(self) -> None:
        assert importlib.util.find_spec("gpu_only_package") is None

    def test_leave_out_the_operators_that_they_do_not_define(self) -> None:
        importlib.import_module("gpu_only_package")
        with stand_ins.operators_left_out("gpu_only_package"):
            assert torch.library.register_fake("gpu_only_package::gate")(len) is len
            with pytest.raises(RuntimeError, match="does not exist"):
                torch.library.register_fake("another_package::gate")(lambda: None)
        with pytest.raises(RuntimeError, match="does not exist"):
            torch.library.register_fake("gpu_only_package::gate")(lambda: None)

    def test_give_a_decorated_function_back(self) -> None:
        module = importlib.import_module("gpu_only_package")

        @module.register
        def plain() -> int:
            return 1

        @module.register_with(name="x")
        def with_arguments() -> int:
            return 2

        assert (plain(), with_arguments()) == (1, 2)

    def test_serve_as_a_field_of_a_pydantic_model(self) -> None:
        import pydantic

        field_type = importlib.import_module("gpu_only_package").Schema
        model = pydantic.create_model("Model", value=(field_type, ...))
        assert model(value=3).value == 3

    def test_leave_other_packages_alone_real_or_absent(self) -> None:
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("another_absent_package")
        assert importlib.import_module("colorsys").rgb_to_hsv is not None
