"""What a run of sglang-jax's scheduler depends on."""

from __future__ import annotations

from pydantic import ConfigDict, PositiveInt
from pydantic.dataclasses import dataclass

from kvproof.conformance.adapters.driven_settings import DrivenSettings


@dataclass(frozen=True, config=ConfigDict(strict=True))
class Settings(DrivenSettings):
    max_running_requests: PositiveInt = 4
    context_length: PositiveInt = 256
