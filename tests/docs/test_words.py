"""The documentation is plain, short and in one order: phrases that it avoids, words of all pages, entries of the navigation."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from repository import DOCS, ROOT

MOST_WORDS = 24_000
MOST_ENTRIES = 25

INSTEAD = {
    r"the rooms|\brooms\b": "modules, packages, project layout",
    r"\b(?:a|its|each|own|other|which|this) room\b(?! for)": "module",
    r"bug does not survive": "triggers a known bug",
    r"what comes of": "the output of",
    r"harm to the recorder": "a failing recorder",
    r"on a card yet": "on a GPU",
    r"of strangers": "untrusted",
    r"beside other tools": "comparison with other tools",
    r"as few of them as will do": "the shortest failing schedule",
    r"does otherwise|(?-i:\bOTHERWISE\b)": "diverges",
    r"a trace knows": "the trace contains",
    r"behind (?:a|the|this|that) violation": "after the first violation",
    r"the first way that is there": "the first variant that it finds",
    r"of a name: 0": "exits 0, or 2 if the name does not exist",
    r"a letter: a token": "each character is one token",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\b(?:is|are|was|were) told\b": "reported, written, shown",
    r"\b(?:has|have) (?:it|them) fixed\b": "fixed",
    r"\bwithout a word\b": "silently",
    r"\bgoes? on\b": "continue",
}
"""Phrases that readers stumble over, as regular expressions, and what to write instead: from the style guide."""

SOURCES = ("package", "spec", "model", "impl", "kernels", "conformance", "tools", "benchmarks", "examples", "docs")
PROSE = (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
"""Kinds of tokens."""

GENERATED_PART = re.compile(
    r"<!-- ([\w-]+):begin.*?<!-- \1:end -->|<!-- [^>]*written by [^>]*-->.*?(?:<!-- end -->|\Z)", re.DOTALL
)
GENERATED_PAGE = re.compile(r"<!-- Written by|# .*\n\nGenerated from ")
BLOCK = re.compile(r"^```.*?^```$|^ {4,}[^\n]*$", re.MULTILINE | re.DOTALL)
"""Fenced and indented code: commands and their output."""
SPAN = re.compile(r"`[^`\n]+`")


def hand_written() -> dict[str, str]:
    """The text of each page that people write, without the parts that commands write. Lines stay where they are."""
    pages = {}
    for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        if not GENERATED_PAGE.match(text):
            pages[path.relative_to(ROOT).as_posix()] = GENERATED_PART.sub(_blank, text)
    return pages


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def offences(name: str, text: str) -> Iterator[str]:
    """Where a page uses a phrase of the table: file, line, phrase, and what to write."""
    prose = SPAN.sub("", BLOCK.sub(_blank, text))
    for phrase, instead in INSTEAD.items():
        for match in re.finditer(phrase.replace(" ", r"\s+"), prose, re.IGNORECASE):
            said = " ".join(match[0].split())
            yield f"{name}:{prose.count(chr(10), 0, match.start()) + 1}: {said!r}, write: {instead}"


def words(text: str) -> int:
    """Words of prose and of tables. Code, commands and their output do not count."""
    return sum(1 for word in BLOCK.sub("", text).split() if re.search(r"\w", word))


def entries(navigation: str) -> int:
    """Pages in the navigation of the site."""
    return len(re.findall(r"^ +- (?:[^:\n]+: )?\S+\.md$", navigation.partition("\nnav:")[2], re.MULTILINE))


def test_no_page_uses_a_phrase_of_the_table() -> None:
    found = [line for name, text in hand_written().items() for line in offences(name, text)]
    assert found == [], "\n".join(found)


def prose_of(source: str) -> str:
    """Strings and comments of a Python source, each on its lines: docstrings, help texts, messages."""
    lines = [""] * (source.count("\n") + 1)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in PROSE:
            for number, text in enumerate(token.string.split("\n"), token.start[0] - 1):
                lines[number] += " " + text.strip()
    return "\n".join(lines)


def test_no_docstring_message_or_comment_uses_one() -> None:
    found = [
        line
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in offences(path.relative_to(ROOT).as_posix(), prose_of(path.read_text(encoding="utf-8")))
    ]
    assert found == [], "\n".join(found)


def test_prose_of_a_source_is_its_strings_and_comments() -> None:
    source = 'goes_on = 1  # it goes on\n\ndef told() -> str:\n    """Who is\n    told."""\n    return f"{told} of strangers"\n'
    assert [line.partition(", ")[0] for line in offences("a.py", prose_of(source))] == [
        "a.py:6: 'of strangers'",
        "a.py:4: 'is told'",
        "a.py:1: 'goes on'",
    ]


def test_the_documentation_is_short() -> None:
    counted = {name: words(text) for name, text in hand_written().items()}
    longest = sorted(counted.items(), key=lambda item: -item[1])[:10]
    assert sum(counted.values()) <= MOST_WORDS, f"{sum(counted.values()):,} words; the longest pages: {longest}"


def test_the_navigation_has_few_entries() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert 10 < entries(navigation) <= MOST_ENTRIES


def test_each_page_is_in_the_navigation_or_linked_from_another_page() -> None:
    pages = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")}
    linked = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]))
    for page, text in pages.items():
        targets = re.findall(r"\]\(([^)#\s]+\.md)[)#]", text)
        linked |= {_inside((DOCS / page).parent / target) for target in targets if not target.startswith("http")}
    assert sorted(pages.keys() - linked) == []


def _inside(path: Path) -> str:
    resolved = path.resolve()
    return resolved.relative_to(DOCS.resolve()).as_posix() if resolved.is_relative_to(DOCS.resolve()) else ""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("# Files of strangers\n", 1),
        ("plain\n\nIt does\notherwise.\n", 3),
        ("Behind a violation nothing is judged.", 1),
        ("It is known,\nnot mended.", 2),
        ("What an adapter\nneeds is told in the header.", 2),
        ("The rooms\n", 1),
        ("Each rule has a room.", 1),
    ],
)
def test_a_phrase_of_the_table_is_noticed(text: str, line: int) -> None:
    (found,) = offences("docs/made_up.md", text)
    assert found.startswith(f"docs/made_up.md:{line}: ") and ", write: " in found


@pytest.mark.parametrize(
    "text",
    [
        "pages of the draft room",
        "A chunk that found no room counts as prefilled",
        "there is room for another page",
        "`does otherwise` is an old verdict",
        "```text\nOTHERWISE t.jsonl\n```\n",
        "The fuzzer recommends it.",
    ],
)
def test_other_uses_are_not(text: str) -> None:
    assert list(offences("docs/made_up.md", text)) == []


def test_generated_parts_code_and_rules_of_tables_are_no_words() -> None:
    text = "# Two words\n\n| a | b |\n| --- | --- |\n```sh\nkvproof prove\n```\n    kvproof replay\n"
    assert words(text) == 4
    marked = "one\n<!-- score:begin -->\nmany words\n<!-- score:end -->\ntwo\n"
    written = "<!-- made: written by x.py -->\nothers\n<!-- end -->\nthree"
    assert words(GENERATED_PART.sub(_blank, marked + written)) == 3
    assert GENERATED_PAGE.match("# Rules\n\nGenerated from `spec/`.")
    assert not GENERATED_PAGE.match("# Rules\n\nBy hand.")


def test_entries_are_the_pages_of_the_navigation() -> None:
    assert entries("x\nnav: # few\n  - Start: index.md\n  - Group:\n      - Page: a/b.md\n      - c.md\n") == 3
