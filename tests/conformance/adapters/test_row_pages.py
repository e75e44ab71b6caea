"""What a recorder tells of the tokens of a prefix: its number."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.conformance.adapters import row_pages
from kvproof.conformance.adapters.row_pages import MOST_READ, RowPages

TOKENS = [5, 6, 7, 8, 9, 10, 11, 12]


def rows() -> RowPages:
    return RowPages(SimpleNamespace(page_size=4), has_window=False)


def told(rows: RowPages, length: int, tokens: list[int], output: tuple[int, ...] = (), **req: Any) -> int | None:
    found = rows.prefix_id(SimpleNamespace(origin_input_ids=tokens, output_ids=list(output), **req), length)
    assert found.keys() <= {"prefix_id"}
    return found.get("prefix_id")


def test_equal_prefixes_have_one_number_however_much_follows_and_whoever_generated_them() -> None:
    r = rows()
    assert told(r, 8, TOKENS) == told(r, 8, [*TOKENS, 1]) == told(r, 8, TOKENS[:6], tuple(TOKENS[6:])) == 1
    assert told(r, 11, TOKENS * 2) == told(r, 8, TOKENS, extra_key=None) == 1


def test_other_tokens_and_another_namespace_have_another_number() -> None:
    r = rows()
    others = [told(r, 8, [*TOKENS[:7], 1]), told(r, 4, TOKENS), told(r, 8, TOKENS, extra_key="a"), told(r, 8, TOKENS)]
    assert others == [1, 2, 3, 4]


def test_a_release_may_have_two_namespaces() -> None:
    r = rows()
    spaces = [{}, {"extra_key": "a"}, {"cache_salt": "a"}, {"extra_key": "a", "cache_salt": "b"}, {"cache_salt": ""}]
    assert [told(r, 8, TOKENS, **space) for space in spaces] == [1, 2, 3, 4, 1]


def test_where_keys_are_pairs_the_token_behind_a_prefix_counts() -> None:
    r = rows()
    r.keys_are_pairs = True
    assert [told(r, 4, TOKENS[:5]), told(r, 4, [*TOKENS[:4], 1]), told(r, 4, TOKENS)] == [1, 2, 1]
    assert told(r, 8, TOKENS) is None, "it is not known"
    assert told(r, 8, TOKENS, (1,)) == told(r, 11, [*TOKENS, 1, 2, 3]) == 3


def test_nothing_is_told_of_less_than_a_page_of_unknown_tokens_and_of_very_many() -> None:
    r = rows()
    assert told(r, 3, TOKENS) is None and told(r, 0, TOKENS) is None
    assert told(r, 12, TOKENS) is None
    many = [1] * (MOST_READ + 4)
    assert told(r, MOST_READ, many) is not None and told(r, MOST_READ + 4, many) is None


def test_prefixes_that_come_when_there_is_no_room_have_no_number_and_others_keep_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_pages, "MOST_PREFIXES", 1)
    r = rows()
    assert [told(r, 8, TOKENS), told(r, 4, TOKENS), told(r, 8, TOKENS)] == [1, None, 1]
