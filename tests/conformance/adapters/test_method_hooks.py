"""A watch never hurts what it watches: the original is called once, with its own arguments, and its outcome is the caller's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


@pytest.fixture
def errors() -> list[Exception]:
    return []


@pytest.fixture
def hooks(errors: list[Exception]) -> Iterator[MethodHooks]:
    """What goes wrong in a wrapper is in `errors`."""
    hooks = MethodHooks(errors.append)
    yield hooks
    hooks.take_away()


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_caller_sees_the_original_whatever_the_wrapper_does(
    wrapper: Callable[..., Any], hooks: MethodHooks, errors: list[Exception]
) -> None:
    pool = Pool()
    hooks.around(Pool, "take", wrapper)
    assert pool.take(3, urgent=True) == 6
    with pytest.raises(ValueError, match="-1"):
        pool.take(-1)
    assert pool.take(4) == 8
    assert pool.calls == [(3, True), (-1, False), (4, False)]
    assert [str(error) for error in errors] == (["ours"] if wrapper in (breaks_before, breaks_after) else [])


@pytest.mark.parametrize("place", ["before", "after", "after alone"])
def test_a_listener_that_breaks_is_told_of_once_and_then_idle(
    place: str, hooks: MethodHooks, errors: list[Exception]
) -> None:
    heard: list[Any] = []

    def listener(*args: Any, **_kwargs: Any) -> None:
        heard.append(args)
        raise RuntimeError("ours")

    if place == "after alone":
        hooks.after(Pool, "take", listener)
    else:
        hooks.between(Pool, "take", *((listener, None) if place == "before" else (None, listener)))
    pool = Pool()
    assert [pool.take(1), pool.take(2)] == [2, 4]
    with pytest.raises(ValueError, match="-5"):
        pool.take(-5)
    assert len(heard) == 1 and [str(error) for error in errors] == ["ours"]


def test_after_an_error_every_wrapper_is_idle(hooks: MethodHooks) -> None:
    heard: list[str] = []
    hooks.around(Pool, "take", breaks_before)
    hooks.between(BiggerPool, "take", lambda *args: heard.append("before"), lambda *args: heard.append("after"))
    BiggerPool().take(1)
    Pool().take(1)
    BiggerPool().take(1)
    assert heard == ["before"]  # its original was the broken wrapper's: from there on nothing is heard


def test_an_interrupt_is_not_swallowed(hooks: MethodHooks) -> None:
    def interrupted(original: Callable[..., Any], *args: Any) -> Any:
        raise KeyboardInterrupt

    hooks.around(Pool, "take", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Pool().take(1)


def test_without_on_error_a_mistake_of_ours_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pool, "take", Pool.take)  # put back afterwards
    MethodHooks().around(Pool, "take", breaks_before)
    with pytest.raises(RuntimeError, match="ours"):
        Pool().take(1)


def test_taking_away_leaves_what_others_put_there_since(hooks: MethodHooks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pool, "take", Pool.take)
    hooks.around(Pool, "take", breaks_before)
    hooks.around(BiggerPool, "take", breaks_before)
    ours = Pool.take

    def theirs(pool: Pool, size: int) -> int:
        return ours(pool, size) + 1

    Pool.take = theirs  # type: ignore[method-assign, assignment]
    hooks.take_away()
    assert Pool.take is theirs
    assert Pool().take(5) == 11
    assert "take" not in vars(BiggerPool)


def test_a_listener_after_hears_of_calls_that_returned(hooks: MethodHooks, errors: list[Exception]) -> None:
    heard, pool = list[tuple[Any, ...]](), Pool()
    hooks.after(Pool, "take", lambda pool, *args, **kwargs: heard.append(args))
    assert pool.take(3) == 6
    with pytest.raises(ValueError, match="-1"):
        pool.take(-1)
    assert heard == [(3,)] and pool.calls == [(3, False), (-1, False)] and not errors
    hooks.take_away()
    assert pool.take(2) == 4 and heard == [(3,)]


def test_who_cannot_even_hear_of_an_error_does_not_hurt_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory for a line in the log, say."""

    def hears(_error: Exception) -> None:
        raise MemoryError

    monkeypatch.setattr(Pool, "take", Pool.take)
    hooks = MethodHooks(hears)
    hooks.around(Pool, "take", breaks_before)
    hooks.after(Pool, "take", lambda *_args, **_kwargs: 1 / 0)  # type: ignore[arg-type,return-value]
    assert Pool().take(2) == 4


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


@pytest.mark.parametrize("group", [Group(), LargerGroup()], ids=["itself", "below another"])
def test_a_function_that_runs_further_up_is_found(group: Group) -> None:
    group.free()
    group.ends()
    group.free()
    assert group.asked == [False, True, False]


def test_it_is_found_below_a_wrapper_of_somebody_else(hooks: MethodHooks) -> None:
    hooks.around(Group, "ends", lambda original, *args: original(*args))
    group = Group()
    group.ends()
    assert group.asked == [True]
