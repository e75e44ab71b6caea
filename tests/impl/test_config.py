from __future__ import annotations

from typing import Any

import pytest

from kvproof.impl.config import MEMORY, ConfigError, EngineConfig


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
        ({"overlap": 1}, "unknown overlap 1; valid: True, False"),
        ({"speculation": 3}, "unknown speculation 3; valid: 0, 1, 2"),
        ({"speculation": True}, "unknown speculation True; valid: 0, 1, 2"),
        ({"speculation": 1, "overlap": True}, "speculation 1 with overlap True"),
        ({"speculation": 2}, "speculation 2 with overlap False"),
        ({"speculation": 1, "drafts": 0}, "drafts 0: must be 1 or more"),
        ({"mixed_chunk": True}, "mixed_chunk True with chunked_prefill_size None"),
        ({"mixed_chunk": True, "chunked_prefill_size": 8, "speculation": 1}, "mixed_chunk True with speculation 1"),
        ({"retract_interval": 1}, "retract_interval 1: must be 2 or more"),
        ({"draft_accuracy": 2}, "draft_accuracy 2: must be a number from 0 to 1"),
        ({"drafter": "oracle"}, "unknown drafter 'oracle'; valid: model, ngram"),
        (
            {"overlap": True, "speculation": 2, "drafts": 4, "row_width": 10},
            "row_width 10 is less than the 11 positions",
        ),
        ({"speculation": 1, "drafts": 7, "pool_pages": 2}, "a pool of 8 tokens is less than the 9 positions"),
        ({"device": "meta"}, "unknown device 'meta'; valid: cpu, cuda, cuda:N"),
        ({"device": "cuda:first"}, "unknown device 'cuda:first'"),
        (
            {"pool_pages": 10**12},
            r"pool_pages 1000000000000 of page_size 4 take [\d,]+ GiB or more; this machine has \d+ GiB",
        ),
        ({"rows": 10**6, "row_width": 10**9}, "rows 1000000 of row_width 1000000000 take "),
        ({"window": 40, "window_pages": 9}, "window_pages 9 is less than the 24 pages .* with window 40"),
        ({"window": 0, "window_pages": 9}, "window 0 with window_pages 9: a window has a pool of its own"),
        ({"window": -1}, "window -1: must be 0 or more"),
        ({"window": 8, "window_pages": 0}, "window_pages 0: must be 1 or more"),
        (
            {"device": "cuda", "pools": "host"},
            "pools host with device cuda: the pages are where the KV is; use pools device",
        ),
        ({"pools": "disk"}, "unknown pools 'disk'; valid: host, device"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_in_one_sentence(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        EngineConfig(**settings)
    assert "\n" not in str(caught.value)


def test_the_kv_of_a_device_is_not_this_machines_memory() -> None:
    pages = MEMORY // (4 * 256)  # of 4 tokens each: with their list, more than fits here
    with pytest.raises(ConfigError, match="this machine has"):
        EngineConfig(pool_pages=pages)
    EngineConfig(pool_pages=pages, device="cuda")


def test_the_longest_input_leaves_room_for_a_token_in_row_and_pool() -> None:
    assert EngineConfig(page_size=4, pool_pages=10, row_width=100).max_input_len == 39
    assert EngineConfig(page_size=4, pool_pages=100, row_width=100).max_input_len == 99


def test_a_round_needs_room_behind_the_last_token() -> None:
    assert EngineConfig(pool_pages=100, row_width=100, speculation=1, drafts=3).max_input_len == 96
    assert EngineConfig(pool_pages=100, row_width=100, overlap=True, speculation=2, drafts=3).max_input_len == 92
