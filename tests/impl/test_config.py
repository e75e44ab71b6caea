from __future__ import annotations

from typing import Any

import pytest

from kvproof.impl.config import ConfigError, EngineConfig


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"page_size": 0}, "page_size 0: must be 1 or more"),
        ({"rows": "x"}, "rows 'x': must be a whole number"),
        ({"pool_pages": True}, "pool_pages True: must be a whole number"),
        ({"chunked_prefill_size": 0}, "chunked_prefill_size 0: must be 1 or more"),
        ({"chunked_prefill_size": 3, "page_size": 4}, "a chunk holds at least one whole page"),
        ({"row_order": "random"}, "unknown row_order 'random'; valid: lifo, fifo"),
        ({"forward": "gpt"}, "unknown forward 'gpt'; valid: transformer, none"),
        ({"retract_after_prepare": 3}, "unknown retract_after_prepare 3; valid: True, False"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_in_one_sentence(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        EngineConfig(**settings)
    assert "\n" not in str(caught.value)


def test_the_longest_input_leaves_room_for_a_token_in_row_and_pool() -> None:
    assert EngineConfig(page_size=4, pool_pages=10, row_width=100).max_input_len == 39
    assert EngineConfig(page_size=4, pool_pages=100, row_width=100).max_input_len == 99
