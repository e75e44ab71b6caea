"""What a recorder tells of the tokens of a prefix."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kvproof.conformance.adapters.row_pages import MOST_HASHED, RowPages


def told(length: int, tokens: list[int], output: tuple[int, ...] = (), key: bytes = b"", **req: Any) -> int | None:
    rows = RowPages(SimpleNamespace(page_size=4), has_window=False, hash_key=key)
    asked = SimpleNamespace(origin_input_ids=tokens, output_ids=list(output), **req)
    found = rows.prefix_hash(asked, length)
    assert found.keys() <= {"prefix_hash"}
    return found.get("prefix_hash")


TOKENS = [5, 6, 7, 8, 9, 10, 11, 12]


def test_equal_prefixes_have_one_hash_however_much_follows_and_whoever_generated_them() -> None:
    one = told(8, TOKENS)
    assert one is not None and 1 <= one < 2**31
    assert told(8, [*TOKENS, 1]) == told(8, TOKENS[:6], tuple(TOKENS[6:])) == told(11, TOKENS * 2) == one


def test_other_tokens_another_namespace_or_another_key_give_another_hash() -> None:
    others = [told(8, [*TOKENS[:7], 1]), told(4, TOKENS), told(8, TOKENS, extra_key="a"), told(8, TOKENS, key=b"k")]
    assert len({told(8, TOKENS, extra_key=None), *others}) == 5
    assert told(8, TOKENS, extra_key=None) == told(8, TOKENS)


def test_nothing_is_told_of_less_than_a_page_of_unknown_tokens_and_of_very_many() -> None:
    assert told(3, TOKENS) is None and told(0, TOKENS) is None
    assert told(12, TOKENS) is None
    many = [1] * (MOST_HASHED + 4)
    assert told(MOST_HASHED, many) is not None and told(MOST_HASHED + 4, many) is None
