from __future__ import annotations

import pytest
from soak import engine_soak as module
from soak.engine_soak import random_config, soak

from kvproof.impl.config import EngineConfig, Pools


def test_random_load_on_random_configurations_loses_nothing() -> None:
    told: list[str] = []
    assert soak(2_500, 11, told.append) == 0
    assert "no violation" in told[0]


def test_so_does_the_device_of_the_same_load() -> None:
    told: list[list[str]] = [[], []]
    assert [soak(1_000, 4, told[0].append, pools="host"), soak(1_000, 4, told[1].append, pools="device")] == [0, 0]
    assert told[0][1:] == told[1][1:]


@pytest.mark.slow
def test_a_long_soak_loses_nothing() -> None:
    assert soak(100_000, 20261121) == 0


@pytest.mark.parametrize(
    ("fault", "pools"),
    [
        *((name, "host") for name in ("F22790b", "F22862b", "F20476", "F22213", "F22735", "F994a", "F12224", "F17850")),
        *((name, "device") for name in ("F22790b", "F22862b")),
    ],
)
def test_a_soak_finds_faults_and_names_the_episode(fault: str, pools: Pools, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(chance: object) -> EngineConfig:
        return EngineConfig(**{**vars(random_config(chance)), "faults": (fault,), "radix_cache": True})  # type: ignore[arg-type]

    monkeypatch.setattr(module, "random_config", faulty)
    told: list[str] = []
    assert soak(20_000, 5, told.append, pools) == 1
    assert told[0].startswith("VIOLATION in episode ") and fault in told[1]


def test_the_drawn_configurations_reach_every_kind() -> None:
    import random

    drawn = [random_config(random.Random(n)) for n in range(200)]
    assert {(config.overlap, config.speculation) for config in drawn} == {(False, 0), (True, 0), (False, 1), (True, 2)}
    assert {config.radix_cache for config in drawn} == {config.mixed_chunk for config in drawn} == {True, False}
