"""What is raised where a policy is broken, and how an onlooker comes between a caller and a function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


class PolicyBroken(Exception):
    """A decision of the scheduler is another than its policy says. No rule need be broken by it, and no page lost."""


def require(kept: bool, sentence: str) -> None:
    """Raises PolicyBroken."""
    if not kept:
        raise PolicyBroken(sentence)


def tap(owner: object, name: str, around: Callable[..., Any]) -> None:
    """From now on `owner.name(...)` is `around(inner, ...)`, where `inner` is what it was. For this one object."""
    setattr(owner, name, partial(around, getattr(owner, name)))
