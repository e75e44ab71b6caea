"""A watch never hurts what it watches: the original is called once, with its own arguments, and its outcome is the caller's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvproof.conformance.adapters.method_hooks import MethodHooks, code_of, is_called_by


class Pool:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def take(self, size: int, *, urgent: bool = False) -> int:
        self.calls.append((size, urgent))
        if size < 0:
            raise ValueError(size)
        return size * 2


class BiggerPool(Pool):
    pass


def breaks_before(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("ours")


def breaks_after(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    original(*args, **kwargs)
    raise RuntimeError("ours")


def calls_twice(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    original(*args, **kwargs)
    return original(*args, **kwargs)


def changes_arguments(original: Callable[..., Any], pool: Pool, size: int, **kwargs: Any) -> Any:
    return original(pool, size + 1, urgent=True)


def changes_result(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    original(*args, **kwargs)
    return "something else"


def swallows(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    try:
        return original(*args, **kwargs)
    except ValueError:
        return 0


WRAPPERS = [breaks_before, breaks_after, calls_twice, changes_arguments, changes_result, swallows]


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_caller_sees_the_original_whatever_the_wrapper_does(wrapper: Callable[..., Any]) -> None:
    errors: list[Exception] = []
    watch, pool = MethodHooks(errors.append), Pool()
    watch.around(Pool, "take", wrapper)
    try:
        assert pool.take(3, urgent=True) == 6
        with pytest.raises(ValueError, match="-1"):
            pool.take(-1)
        assert pool.take(4) == 8
    finally:
        watch.take_away()
    assert pool.calls == [(3, True), (-1, False), (4, False)]
    assert [str(error) for error in errors] == (["ours"] if wrapper in (breaks_before, breaks_after) else [])


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_listener_that_breaks_is_told_once_and_then_idle(place: str) -> None:
    errors: list[Exception] = []
    heard: list[Any] = []

    def listener(*args: Any) -> None:
        heard.append(args)
        raise RuntimeError("ours")

    watch, pool = MethodHooks(errors.append), Pool()
    watch.between(Pool, "take", listener if place == "before" else None, listener if place == "after" else None)
    try:
        assert [pool.take(1), pool.take(2)] == [2, 4]
        with pytest.raises(ValueError, match="-5"):
            pool.take(-5)
    finally:
        watch.take_away()
    assert len(heard) == 1 and len(errors) == 1


def test_after_an_error_every_wrapper_is_idle() -> None:
    watch, pool = MethodHooks(lambda error: None), Pool()
    heard: list[str] = []
    watch.around(Pool, "take", breaks_before)
    watch.between(BiggerPool, "take", lambda *args: heard.append("before"), lambda *args: heard.append("after"))
    try:
        BiggerPool().take(1)
        pool.take(1)
        BiggerPool().take(1)
    finally:
        watch.take_away()
    assert heard == ["before"]  # its original was the broken wrapper's: from there on nothing is heard


def test_an_interrupt_is_not_swallowed() -> None:
    def interrupted(original: Callable[..., Any], *args: Any) -> Any:
        raise KeyboardInterrupt

    watch = MethodHooks(lambda error: None)
    watch.around(Pool, "take", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            Pool().take(1)
    finally:
        watch.take_away()


def test_without_on_error_a_mistake_of_ours_is_raised() -> None:
    watch = MethodHooks()
    watch.around(Pool, "take", breaks_before)
    try:
        with pytest.raises(RuntimeError, match="ours"):
            Pool().take(1)
    finally:
        watch.take_away()


def test_taking_away_leaves_what_others_put_there_since() -> None:
    original = Pool.take
    watch = MethodHooks(lambda error: None)
    watch.around(Pool, "take", breaks_before)
    watch.around(BiggerPool, "take", breaks_before)
    ours = Pool.take

    def theirs(pool: Pool, size: int) -> int:
        return ours(pool, size) + 1

    Pool.take = theirs  # type: ignore[method-assign, assignment]
    try:
        watch.take_away()
        assert Pool.take is theirs
        assert Pool().take(5) == 11
        assert "take" not in vars(BiggerPool)
    finally:
        Pool.take = original  # type: ignore[method-assign]


def test_a_listener_after_hears_of_calls_that_returned() -> None:
    heard, errors = list[tuple[Any, ...]](), list[Exception]()
    watch = MethodHooks(errors.append)
    watch.after(Pool, "take", lambda pool, *args, **kwargs: heard.append(args))
    try:
        pool = Pool()
        assert pool.take(3) == 6
        with pytest.raises(ValueError, match="-1"):
            pool.take(-1)
        assert heard == [(3,)] and pool.calls == [(3, False), (-1, False)] and not errors
    finally:
        watch.take_away()
    assert pool.take(2) == 4 and heard == [(3,)]


def test_a_listener_after_that_breaks_is_told_of_once_and_heard_no_more() -> None:
    errors = list[Exception]()
    watch = MethodHooks(errors.append)
    watch.after(Pool, "take", breaks_before)
    try:
        assert Pool().take(3) == 6 and Pool().take(4) == 8
        assert [str(error) for error in errors] == ["ours"]
    finally:
        watch.take_away()


# -- who calls --


class Group:
    def __init__(self) -> None:
        self.asked: list[bool] = []

    def ends(self) -> None:
        [self.free() for _ in range(1)]  # with a frame in between

    def free(self) -> None:
        self.asked.append(is_called_by((code_of(Group, "ends"),)))


class LargerGroup(Group):
    def ends(self) -> None:
        super().ends()


def test_a_function_that_runs_further_up_is_found() -> None:
    for group in (Group(), LargerGroup()):
        group.free()
        group.ends()
        group.free()
        assert group.asked == [False, True, False]


def test_it_is_found_below_a_wrapper_of_somebody_else() -> None:
    watch = MethodHooks()
    watch.around(Group, "ends", lambda original, *args: original(*args))
    try:
        group = Group()
        group.ends()
        assert group.asked == [True]
    finally:
        watch.take_away()


def test_who_cannot_even_hear_of_an_error_does_not_hurt_the_code() -> None:
    """No memory for a line in the log, say."""

    def hears(_error: Exception) -> None:
        raise MemoryError

    watch = MethodHooks(hears)
    watch.around(Pool, "take", breaks_before)
    watch.after(Pool, "take", lambda *_args, **_kwargs: 1 / 0)  # type: ignore[arg-type,return-value]
    try:
        assert Pool().take(2) == 4
    finally:
        watch.take_away()
