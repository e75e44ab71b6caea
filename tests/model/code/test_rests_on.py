"""An answer holds as long as nothing changed that was read for it."""

from __future__ import annotations

import pytest
from texts import Texts

from kvproof.model.code.interpreter import Interpreter
from kvproof.model.code.library import LIBRARY
from kvproof.model.code.paths import Paths
from kvproof.model.code.rests_on import Shifts, again, parts_of, read_of
from kvproof.model.code.source import MENTIONS, SETS, Sources
from kvproof.model.symbolic import Symbols

CACHE = '''
import dataclasses

PAGE = 1

def helper(x):
    return x + 1

def other(x):
    x.row = 2
    return x

def begin():
    pass

begin()

class Cache:
    size: int = 1

    @property
    def row(self):
        return self.size

    @row.setter
    def row(self, value):
        self.size = value

    def freed(self, x):
        """Frees."""
        return helper(x)

    def kept(self, x):
        return x  # the swa window
'''
FREED_AT = CACHE.split("\n").index("    def freed(self, x):") + 1


def read_for_freed(text: str) -> Sources:
    """What is read when `Cache.freed` runs, and when some more is asked."""
    d, sources = Symbols(), Sources(Texts({"cache.py": text}))
    interpreter = Interpreter(d, sources, Paths([]), {}, LIBRARY)
    cache = interpreter.construct(interpreter.imported("cache", "Cache"), [], {})
    assert interpreter.call(interpreter.attribute(cache, "freed"), [1], {}) == 2
    module = sources.module("cache")
    assert module is not None and sources.module("another") is None
    assert module.fact(MENTIONS, "swa") and module.fact(SETS, "other") == ["row"]
    return sources


def since(before: str, after: str, **more: str) -> Shifts | None:
    read = read_of(read_for_freed(before))
    found = again(read, Sources(Texts({"cache.py": after, **{f"{name}.py": text for name, text in more.items()}})))
    return found[1] if found is not None else None


def test_what_is_read_is_what_ran_and_what_was_asked() -> None:
    read = read_of(read_for_freed(CACHE))
    assert set(read) == {"cache", "another"} and read["another"] is None
    assert read["cache"] is not None
    assert set(read["cache"].functions) == {"helper", "Cache.freed"}
    assert read["cache"].facts == [(MENTIONS, "swa", ["swa"]), (SETS, "other", ["row"])]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return x  # the swa", "return x + 1  # the swa"),
        ("    x.row = 2", "    x.row = 3"),
        ("        self.size = value", "        self.size = value + 1"),
        ("PAGE = 1", "PAGE = 1  # a page"),
        ("PAGE = 1", "# a page\n\nPAGE = 1"),
    ],
)
def test_another_function_and_a_comment_leave_the_answer(old: str, new: str) -> None:
    assert old in CACHE
    moved = since(CACHE, CACHE.replace(old, new))
    assert moved is not None
    lines = new.count("\n") - old.count("\n")
    assert {by for _, _, by in moved["cache.py"]} == {lines}
    assert FREED_AT in {first for first, _, _ in moved["cache.py"]}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return helper(x)", "return helper(x) + 0"),
        ("return x + 1", "return x + 2"),
        ('"""Frees."""', '"""Does not."""'),
        ("PAGE = 1", "PAGE = 2"),
        ("size: int = 1", "size: int = 2"),
        ("class Cache:", "class Cache(dict):"),
        ("import dataclasses", "from elsewhere import helper"),
        ("    def kept(self, x)", "    def kept(self, x=helper)"),
        ("    def kept(self, x)", "    @staticmethod\n    def kept(self, x)"),
        ("    def kept(self, x)", "    def freed(self, x)"),
        ("def begin():\n    pass", "def begin():\n    Cache.freed = None"),
        ("    x.row = 2", "    global helper\n    x.row = 2"),
        ("    x.row = 2", "    x.column = 2"),
        ("the swa window", "the window"),
        ("begin()\n\nclass", "begin()\n\nbegin()\n\nclass"),
        ("begin()\n\nclass", "class"),
        ("return x  # the swa", "return ((  # the swa"),
    ],
)
def test_what_was_read_and_what_an_import_may_change_ask_anew(old: str, new: str) -> None:
    assert old in CACHE
    assert since(CACHE, CACHE.replace(old, new)) is None


def test_a_module_that_was_not_there_asks_anew() -> None:
    assert since(CACHE, CACHE) == {"cache.py": []}
    assert since(CACHE, CACHE, another="") is None


def test_of_a_property_getter_and_setter_are_two_functions() -> None:
    sources = Sources(Texts({"cache.py": CACHE}))
    module = sources.module("cache")
    assert module is not None
    module.was_read.add(module.functions[4][1])
    [name] = read_of(sources)["cache"].functions  # type: ignore[union-attr]
    assert name == "Cache.row#1"


def test_the_answer_rests_on_the_same_when_it_is_found_again() -> None:
    read = read_of(read_for_freed(CACHE))
    longer = Texts({"cache.py": CACHE.replace("PAGE = 1", "# a page\nPAGE = 1")})
    found = again(read, Sources(longer))
    assert found is not None
    assert found[0] == read_of(read_for_freed(longer.texts["cache.py"]))


def test_who_reads_all_of_a_module_rests_on_all_of_it() -> None:
    sources = read_for_freed(CACHE)
    module = sources.module("cache")
    assert module is not None and "PAGE" in module.text
    read = read_of(sources)
    assert again(read, Sources(Texts({"cache.py": CACHE}))) is not None
    assert again(read, Sources(Texts({"cache.py": CACHE.replace("PAGE = 1", "PAGE = 1  # a page")}))) is None


def test_the_parts_of_an_answer_have_the_names_of_the_functions() -> None:
    read = {"helper", "Cache.freed", "other", "*", ""}
    assert parts_of(read_for_freed(CACHE)) == {f"cache.py:{name}" for name in read}
