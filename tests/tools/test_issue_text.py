"""Each finding that is not fixed becomes an issue's text that stands alone."""

from __future__ import annotations

import re

import pytest
from issue_text import issue, names, page_of, scripts

NAMES = names()
FIXED = [name for name in NAMES if "**Fixed" in page_of(name)]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in FIXED])
def test_a_finding_becomes_an_issue(name: str) -> None:
    text = issue(name, "0.5.23", "there: it is")
    heads = re.findall(r"^### (.*)$", text, re.MULTILINE)
    assert heads == ["Checklist", "Describe the bug", "Reproduction", "Environment"]
    told = text.partition("<details>")[0]
    assert "there: it is" in told and "**Cause.**" in told and "**Possible fix.**" in told
    assert told.count("```diff\n--- a/python/sglang/srt/") == 1
    assert not re.search(r"kvproof|\bS05\d\d\w|\bI\d+\b|\]\(", told), "names of ours mean nothing to its reader"
    for script in scripts(name):
        assert script.read_text(encoding="utf-8").strip() in text


def test_what_is_fixed_is_no_issue() -> None:
    assert len(FIXED) == 6
    with pytest.raises(ValueError, match="is fixed: "):
        issue(FIXED[0], "0.5.23", "")
