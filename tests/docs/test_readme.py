"""The readme is short, and what it shows of SGLang, in words and in its picture, is what was recorded."""

from __future__ import annotations

import gzip
import json
import re

from repository import DOCS, ROOT
from test_words import words

MOST_WORDS = 500
README = (ROOT / "README.md").read_text(encoding="utf-8")
PICTURE = (DOCS / "pictures" / "shared_page.svg").read_text(encoding="utf-8")
TRACE = ROOT / "examples" / "traces" / "sglang-0.5.23-busy-twice.jsonl.gz"
FOUND = ROOT / "tests" / "conformance" / "adapters" / "sglang" / "findings.json"


def test_it_is_short() -> None:
    assert words(README) <= MOST_WORDS


def test_each_script_finds_on_the_newest_release_what_it_says() -> None:
    release, found = list(json.loads(FOUND.read_text(encoding="utf-8")).items())[-1]
    assert f"$(or $(RELEASE),{release})\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    scripts = dict(re.findall(r"^\$ make finding NAME=(\w+)\n((?:[^$`].*\n)+)", README, re.MULTILINE))
    assert len(scripts) == 3
    for script, output in scripts.items():
        said = re.findall(r"^there: (.*)$", output, re.MULTILINE)
        assert said and all(found[script][what] for what in said), script


def test_it_counts_the_findings_of_the_newest_release() -> None:
    release, found = list(json.loads(FOUND.read_text(encoding="utf-8")).items())[-1]
    there = [script for script, findings in found.items() if any(findings.values())]
    assert len(there) == 11 and f"Three of eleven bugs of SGLang {release}" in README


def test_the_picture_shows_what_the_trace_contains() -> None:
    with gzip.open(TRACE, "rt", encoding="utf-8") as lines:
        events = {record["seq"]: record for record in map(json.loads, lines) if record["record"] == "event"}
    by_row = [page for seq in (3, 12, 18) for page in events[seq]["alloc"]]
    assert by_row == [1, 2, 3, 4, 5, 6, 7] and events[5]["shared"] == [1, 2, 3]
    assert events[25]["turn"] == "s1/03" and events[25]["after"]["inflight"] is False
    admitted = events[34]
    assert (admitted["turn"], admitted["free"], admitted["row"]) == ("s1/04", [7], events[18]["row"])
    assert events[31]["turn"] == "s1/02" and events[31]["after"]["kv_committed_len"] == 28
    check = events[93]
    free = check["free_list"]
    assert free[:8] == [4, 5, 6, 8, 7, 7, 9, 11] and 10 not in free
    assert check["params"]["own_check_ok"]
    assert re.findall(r'class="page"[^>]*>(\d+)<', PICTURE) == [str(page) for page in [*by_row, *by_row, *free[:8]]]
    terms = check["terms"]
    assert f"{terms['available']} available + {terms['evictable']} evictable = {terms['total']} pages" in PICTURE
