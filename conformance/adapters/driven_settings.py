"""What a run of a scheduler that is driven in this process depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from pydantic import ConfigDict, NonNegativeInt, PositiveInt, ValidationError
from pydantic.dataclasses import dataclass

from kvproof.conformance.errors import UserError, unknown


@dataclass(frozen=True, config=ConfigDict(strict=True))
class DrivenSettings:
    """Those that each target has. Lengths are in tokens. A value of another kind is refused: a user may give any."""

    page_size: PositiveInt = 1
    pool_tokens: PositiveInt = 512
    max_running_requests: PositiveInt = 6
    chunked_prefill_size: PositiveInt | None = None
    mixed_chunk: bool = False
    overlap: bool = False
    window: NonNegativeInt = 0
    """sliding window of one of the model's two layers; 0: full attention"""
    disable_radix_cache: bool = False
    """a chunk cache in place of the tree"""
    context_length: PositiveInt = 512
    seed: NonNegativeInt = 0

    def require_whole_pages(self) -> None:
        for name in ("pool_tokens", "chunked_prefill_size"):
            tokens = getattr(self, name)
            if tokens is not None and tokens % self.page_size:
                raise UserError(f"{name} {tokens} is no multiple of page_size {self.page_size}")


SettingsT = TypeVar("SettingsT", bound=DrivenSettings)


def settings_of_user(kind: type[SettingsT], target: str, values: Mapping[str, Any]) -> SettingsT:
    """The settings with these values; one that is unknown, or of another kind, is the user's to change."""
    names = sorted(field.name for field in fields(kind))
    for name in values:
        if name not in names:
            raise unknown(f"setting of {target}", name, names)
    try:
        return kind(**values)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        raise UserError(f"setting {wrong['loc'][0]} of {target}: {wrong['msg']}, found {wrong['input']!r}") from error
