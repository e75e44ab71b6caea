"""Puts a wrapper around methods of running code and takes it away again.

A wrapper gets the original first: `wrapper(original, *args, **kwargs)`, and `args` begin with the instance. It calls the
original once; what that returned or raised is what the caller gets.

`MethodHooks` with an `on_error` never hurt the code that they watch: the original is called exactly once with the
caller's own arguments, and the caller gets the original's own outcome, whatever the wrapper does. The first error of a
wrapper goes to `on_error`, and from then on the hooks are idle. Without `on_error` such an error is raised: a test wants
to see it.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any

Wrapper = Callable[..., Any]
OnError = Callable[[Exception], None]


def code_of(owner: Any, name: str) -> CodeType:
    """The code of a function as `owner` has it now, also where somebody has wrapped it."""
    code: CodeType = inspect.unwrap(getattr(owner, name)).__code__
    return code


def is_called_by(codes: tuple[CodeType, ...]) -> bool:
    """Whether a function with one of these codes is running: it called the caller of this, maybe by others.

    To ask so where it matters costs those nothing who call the function at every step, as a listener would.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if any(frame.f_code is code for code in codes):
            return True
        frame = frame.f_back
    return False


def importers_of(package: str, home: Any, function: str) -> list[Any]:
    """The loaded modules of a package that have this function of the module `home`, also those that imported it by name."""
    original = getattr(home, function)
    modules = [module for name, module in sys.modules.items() if name.startswith(f"{package}.") and module is not None]
    return [module for module in modules if vars(module).get(function) is original]


def of_a_method(handler: Wrapper) -> Wrapper:
    """The handler of a function, for a method that does the same: the instance goes to the original alone."""
    return lambda original, owner, *args, **kwargs: handler(functools.partial(original, owner), *args, **kwargs)


class _Call:
    """One call of the original on behalf of a wrapper: made once, with the caller's arguments."""

    __slots__ = ("_args", "_kwargs", "_original", "error", "made", "result")

    def __init__(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._original, self._args, self._kwargs = original, args, kwargs
        self.made = False
        self.result: Any = None
        self.error: BaseException | None = None

    def __call__(self, *_args: Any, **_kwargs: Any) -> Any:
        if not self.made:
            self.made = True
            try:
                self.result = self._original(*self._args, **self._kwargs)
            except BaseException as error:
                self.error = error
        if self.error is not None:
            raise self.error
        return self.result


class MethodHooks:
    def __init__(self, on_error: OnError | None = None) -> None:
        self._on_error = on_error
        self._undo: list[Callable[[], None]] = []
        self._idle = False

    def around(self, owner: Any, name: str, wrapper: Wrapper) -> None:
        """`owner` is a class (all its instances are watched) or a module (for a function that it imported by name)."""
        if self._on_error is None:
            self._put(owner, name, lambda original: lambda *args, **kwargs: wrapper(original, *args, **kwargs))
        else:
            self._put(owner, name, lambda original: self._guarded(original, wrapper))

    def between(
        self, owner: Any, name: str, before: Callable[..., None] | None, after: Callable[..., None] | None
    ) -> None:
        """Listeners of the arguments of each call, before it and after it (also when it raises). Cheaper than a wrapper."""

        def listened(original: Callable[..., Any]) -> Callable[..., Any]:
            def watched(*args: Any, **kwargs: Any) -> Any:
                if before is not None and not self._idle:
                    try:
                        before(*args, **kwargs)
                    except Exception as error:
                        self._fail(error)
                try:
                    return original(*args, **kwargs)
                finally:
                    if after is not None and not self._idle:
                        try:
                            after(*args, **kwargs)
                        except Exception as error:
                            self._fail(error)

            return watched

        self._put(owner, name, listened)

    def after(self, owner: Any, name: str, listener: Callable[..., None]) -> None:
        """A listener of the arguments of each call that has returned. The cheapest of all."""

        def listened(original: Callable[..., Any]) -> Callable[..., Any]:
            def watched(*args: Any, **kwargs: Any) -> Any:
                result = original(*args, **kwargs)
                if not self._idle:
                    try:
                        listener(*args, **kwargs)
                    except Exception as error:
                        self._fail(error)
                return result

            return watched

        self._put(owner, name, listened)

    def take_away(self) -> None:
        """Put the originals back; where someone else has wrapped ours since, ours stays and does nothing."""
        self._idle = True
        while self._undo:
            self._undo.pop()()

    def _put(self, owner: Any, name: str, wrapped: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        original = getattr(owner, name)
        had_its_own = name in vars(owner)
        watched = functools.wraps(original)(wrapped(original))

        def undo() -> None:
            if vars(owner).get(name) is not watched:
                return
            if had_its_own:
                setattr(owner, name, original)
            else:
                delattr(owner, name)

        setattr(owner, name, watched)
        self._undo.append(undo)

    def _guarded(self, original: Callable[..., Any], wrapper: Wrapper) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            if self._idle:
                return original(*args, **kwargs)
            call = _Call(original, args, kwargs)
            try:
                wrapper(call, *args, **kwargs)
            except Exception as error:
                if error is not call.error:
                    self._fail(error)
            # What interrupts (KeyboardInterrupt, SystemExit) passes through: it was not meant for the wrapper.
            return call()

        return watched

    def _fail(self, error: Exception) -> None:
        if self._on_error is None:
            raise error
        if not self._idle:
            self._idle = True
            with suppress(Exception):  # who cannot even hear of it must not hurt the code either
                self._on_error(error)
