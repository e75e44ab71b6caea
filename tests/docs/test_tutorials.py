"""The commands of the readme, the tutorials and the five minutes are typed, and answer as the pages say."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from walk import ROOT, Command, File, first_missing, steps, walk

PAGES = {
    "README.md": 4,
    "docs/start.md": 7,
    "docs/tutorials/prove_a_fix.md": 6,
    "docs/tutorials/prove_a_pull_request.md": 3,
    "docs/tutorials/judge_a_trace.md": 12,
    "docs/tutorials/fuzz_a_branch.md": 6,
}
"""Pages and the number of their commands: a block that is no longer found must show."""


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_what_happens(page: str, tmp_path: Path) -> None:
    assert walk(ROOT / page, tmp_path) == PAGES[page]


def test_every_page_with_commands_is_walked_through() -> None:
    found = [path for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")] if "```console" in path.read_text()]
    assert sorted(str(path.relative_to(ROOT)) for path in found) == sorted(PAGES)


PAGE = """
```python title="a.py"
print(1)
```

```console
$ python a.py
1
$ python -c 'print("one   two"); exit(3)'
one two
(exit 3)
```
"""


def test_blocks_are_read_as_files_and_commands() -> None:
    assert list(steps(PAGE)) == [
        File("a.py", "print(1)\n"),
        Command("python a.py", 0, ["1"]),
        Command("""python -c 'print("one   two"); exit(3)'""", 3, ["one two"]),
    ]


@pytest.mark.parametrize(
    ("right", "wrong"), [("(exit 3)", "(exit 1)"), ("one two", "two one"), ("\n1\n", "\n2\n"), ("print(1)", "print(2)")]
)
def test_a_page_that_says_something_else_fails(right: str, wrong: str, tmp_path: Path) -> None:
    for name, text in {"good": PAGE, "bad": PAGE.replace(right, wrong, 1)}.items():
        (page := tmp_path / f"{name}.md").write_text(text)
        (tmp_path / name).mkdir()
        with pytest.raises(AssertionError) if name == "bad" else nullcontext():
            assert walk(page, tmp_path / name) == 2


def test_words_are_looked_for_in_their_order() -> None:
    assert first_missing(["a b", "c"], "x a\n  b\nc") is None
    assert first_missing(["c", "a"], "a c") == "a"
