"""Puts a wrapper around methods of running code and takes it away again.

A wrapper gets the original first: `wrapper(original, *args, **kwargs)`, and `args` begin with the instance. It must call
the original once, with what it was given, and hand back what that returned.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

Wrapper = Callable[..., Any]


class Watch:
    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def around(self, owner: Any, name: str, wrapper: Wrapper) -> None:
        """`owner` is a class (all its instances are watched) or a module (for a function that it imported by name)."""
        original = getattr(owner, name)
        had_its_own = name in vars(owner)

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            return wrapper(original, *args, **kwargs)

        setattr(owner, name, watched)
        self._undo.append(lambda: setattr(owner, name, original) if had_its_own else delattr(owner, name))

    def take_away(self) -> None:
        while self._undo:
            self._undo.pop()()
