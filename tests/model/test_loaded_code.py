"""A digest of code changes with everything that decides what the code does, and with nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.model.expectations import explored
from kvproof.model.explore import reach, walk
from kvproof.model.loaded_code import NotReadableError, digest_of
from kvproof.spec.machine import MACHINES

TABLE = {"a": 1}
CHOICE = frozenset({"x", "y"})


@dataclass(frozen=True)
class Pair:
    first: int
    second: int = 2

    def total(self) -> int:
        return self.first + self.second

    @property
    def half(self) -> float:
        return self.total() / 2


def helper(x: int) -> int:
    return x + TABLE["a"]


@cache
def kept(x: int) -> int:
    return helper(x)


def root(x: int, more: int = 3) -> Any:
    return kept(x) + Pair(x, more).half + len([helper(y) for y in range(x)]) + (str(x) in CHOICE)


def closure(n: int) -> Callable[[], int]:
    return lambda: n


HERE = sys.modules[__name__]
CHANGES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "an entry of a table": lambda m: m.setitem(TABLE, "a", 2),
    "a further entry": lambda m: m.setitem(TABLE, "b", 2),
    "a set": lambda m: m.setattr(HERE, "CHOICE", frozenset({"x"})),
    "a function": lambda m: m.setattr(HERE, "helper", lambda x: x + TABLE["a"] + 0),
    "the code of a function": lambda m: m.setattr(helper, "__code__", (lambda x: x).__code__),
    "a default": lambda m: m.setattr(root, "__defaults__", (4,)),
    "a method": lambda m: m.setattr(Pair, "total", lambda self: 0),
    "a property": lambda m: m.setattr(Pair, "half", property(lambda self: 0)),
    "what is wrapped": lambda m: m.setattr(HERE, "kept", cache(lambda x: 0)),
    "a constant": lambda m: m.setattr(helper, "__code__", helper.__code__.replace(co_consts=(None, "b"))),
    "a builtin of the module's own": lambda m: m.setattr(HERE, "len", lambda x: 0, raising=False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_what_is_loaded_changes_the_digest(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest_of(root)
    with monkeypatch.context() as patched:
        CHANGES[change](patched)
        assert digest_of(root) != before
    assert digest_of(root) == before


def test_what_a_function_keeps_from_earlier_calls_does_not_count() -> None:
    before = digest_of(root)
    root(5)
    assert digest_of(root) == before


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (closure(1), closure(2)),
        (partial(helper, 1), partial(helper, 2)),
        (partial(helper, x=1), partial(helper, 1)),
        ([1, [2]], [1, 2]),
        ((1,), [1]),
        (1, True),
        ("1", 1),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1, 2}, {1}),
        (SimpleNamespace(a=1), SimpleNamespace(a=2)),
        (Pair(1), Pair(2)),
        (Pair(1).total, Pair(2).total),
        (str.join, str.split),
        (len, max),
    ],
)
def test_two_things_have_two_digests(one: Any, other: Any) -> None:
    assert digest_of(one) != digest_of(other)


def test_what_cannot_be_read_is_said() -> None:
    with pytest.raises(NotReadableError, match=r"re\.Pattern"):
        digest_of(re.compile("a"))


def test_all_searches_of_the_proof_can_be_read_and_another_process_reads_the_same() -> None:
    digests = [digest_of(reach), digest_of(explored), *(digest_of(partial(walk, m)) for m in MACHINES)]
    assert len(set(digests)) == len(digests)
    says = "from kvproof.model.expectations import explored as c; from kvproof.model.loaded_code import digest_of"
    again = subprocess.run(
        [sys.executable, "-c", f"{says}; print(digest_of(c))"], capture_output=True, text=True, check=True
    )
    assert again.stdout.strip() == digests[1]
