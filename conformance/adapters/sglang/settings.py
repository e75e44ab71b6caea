"""What a run of the headless scheduler depends on."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, NonNegativeFloat, NonNegativeInt
from pydantic.dataclasses import dataclass

from kvproof.conformance.adapters.driven_settings import DrivenSettings

Device = Literal["cpu", "cuda"]


@dataclass(frozen=True, config=ConfigDict(strict=True))
class Settings(DrivenSettings):
    """Settings that no release changes."""

    drafts: NonNegativeInt = 0
    """draft tokens of each round of speculation (`draft_model.py`), v2 with `overlap` and v1 without; 0: none"""
    swa_full_tokens_ratio: NonNegativeFloat = 0.8
    """size of the window pool, as a part of the other's"""
    schedule_conservativeness: NonNegativeFloat = 1.0
    """less than 1: more is admitted than will fit, so that requests are retracted"""
    streaming_sessions: bool = True
    device: Device = "cpu"
    real_forward: bool = False
    """the tiny model's own forward, with random weights; else the tokens are made up"""
