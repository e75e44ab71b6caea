import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from repository import EXCERPT, ROOT

from kvproof.conformance.adapters.workload import WorkloadRequest, read_workload
from kvproof.conformance.errors import UserError

# Full public files, where a developer has them beside the checkout.
FULL = ROOT.parent / "shared" / "data"
needs_full = pytest.mark.skipif(not FULL.exists(), reason="the full public workloads are not here")
AZURE_HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def mooncake(tmp_path: Path, *rows: tuple[int, int, int, list[int]]) -> Path:
    path = tmp_path / "mooncake.jsonl"
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows))
    return path


def azure(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "azure.csv"
    path.write_text(AZURE_HEAD + "".join(line + "\n" for line in lines))
    return path


def error_of(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_workload(path)
    return caught.value.message


# --- Mooncake -------------------------------------------------------------------------------------------------------------


def test_a_request_that_repeats_the_full_blocks_of_another_is_its_next_turn(tmp_path: Path) -> None:
    # The last block of a prompt is partly filled: id 2 comes back as 7 once the reply has filled it.
    path = mooncake(tmp_path, (0, 1100, 100, [0, 1, 2]), (5, 1300, 50, [0, 1, 7]))
    assert read_workload(path) == [
        WorkloadRequest(0.0, "c1", 1100, 100, "block-0"),
        WorkloadRequest(5.0, "c1", 100, 50, "block-0"),
    ]


def test_a_third_turn_counts_from_the_second(tmp_path: Path) -> None:
    path = mooncake(tmp_path, (0, 1100, 100, [0, 1, 2]), (1, 1300, 300, [0, 1, 3]), (2, 1610, 5, [0, 1, 4, 5]))
    assert [(r.session, r.new_tokens) for r in read_workload(path)] == [("c1", 1100), ("c1", 100), ("c1", 10)]


def test_the_longest_earlier_conversation_is_continued(tmp_path: Path) -> None:
    path = mooncake(tmp_path, (0, 1100, 1, [0, 1, 2]), (0, 2100, 1, [0, 1, 9, 3, 4]), (1, 2600, 1, [0, 1, 9, 3, 5, 6]))
    sessions = [r.session for r in read_workload(path)]
    assert sessions[2] == sessions[1]


def test_a_shared_system_prompt_alone_makes_no_conversation(tmp_path: Path) -> None:
    path = mooncake(tmp_path, (0, 600, 1, [0, 1]), (0, 700, 1, [0, 2]))
    assert [(r.session, r.prefix_group) for r in read_workload(path)] == [("c1", "block-0"), ("c2", "block-0")]


def test_a_regenerated_turn_appends_one_token(tmp_path: Path) -> None:
    path = mooncake(tmp_path, (0, 1100, 100, [0, 1, 2]), (5, 1100, 80, [0, 1, 2]))
    assert read_workload(path)[1] == WorkloadRequest(5.0, "c1", 1, 80, "block-0")


def test_the_excerpt_holds_fifteen_conversations_in_order_of_arrival() -> None:
    requests = read_workload(EXCERPT)
    turns = Counter(r.session for r in requests)
    assert len(requests) == 40
    assert sorted(turns.values()) == [1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5]
    assert [r.arrival_ms for r in requests] == sorted(r.arrival_ms for r in requests)
    assert sum(r.new_tokens + r.output_tokens for r in requests) == 45198


@needs_full
def test_the_full_mooncake_trace_holds_3974_continuations_and_chains_up_to_43() -> None:
    turns = Counter(r.session for r in read_workload(FULL / "mooncake_conversation.jsonl"))
    assert turns.total() == 12_031
    assert turns.total() - len(turns) == 3_974
    assert max(turns.values()) == 43


# --- Azure ----------------------------------------------------------------------------------------------------------------


def test_each_azure_row_is_an_ordinary_request(tmp_path: Path) -> None:
    path = azure(tmp_path, "2023-11-16 23:59:59.9799600,4808,10", "2023-11-17 00:00:00.0319600,3180,8")
    assert read_workload(path) == [
        WorkloadRequest(0.0, None, 4808, 10, None),
        WorkloadRequest(52.0, None, 3180, 8, None),
    ]


def test_columns_may_come_in_another_order_and_the_time_with_a_zone(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text("GeneratedTokens,TIMESTAMP,ContextTokens\n3,2024-05-10 00:00:00.5+00:00,7\n")
    assert read_workload(path) == [WorkloadRequest(0.0, None, 7, 3, None)]


@needs_full
def test_the_full_azure_trace_is_one_hour_of_ordinary_requests() -> None:
    requests = read_workload(FULL / "azure_code_2023.csv")
    assert len(requests) == 8_819
    assert {r.session for r in requests} == {None}
    assert 3_400_000 < requests[-1].arrival_ms < 3_600_000


# --- scale and limit ------------------------------------------------------------------------------------------------------


@given(scale=st.integers(1, 5000), limit=st.integers(1, 50))
def test_scaling_rounds_up_and_changes_nothing_else(scale: int, limit: int) -> None:
    for real, scaled in zip(
        read_workload(EXCERPT, limit=limit), read_workload(EXCERPT, scale=scale, limit=limit), strict=True
    ):
        for name in ("new_tokens", "output_tokens"):
            length = getattr(scaled, name)
            assert (length - 1) * scale < getattr(real, name) <= length * scale
        for name in ("arrival_ms", "session", "prefix_group"):
            assert getattr(scaled, name) == getattr(real, name)


def test_a_limit_reads_no_further(tmp_path: Path) -> None:
    path = azure(tmp_path, "2023-11-16 18:17:03.9,4808,10", "broken")
    assert len(read_workload(path, limit=1)) == 1


@pytest.mark.parametrize(("options", "expected"), [({"scale": 0}, "scale 0"), ({"limit": 0}, "limit 0")])
def test_a_scale_or_limit_of_zero_is_refused(options: dict[str, int], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        read_workload(EXCERPT, **options)


# --- other files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "line", "expected"),
    [
        ("prompt,response\na,b\n", 1, "found the line 'prompt,response'"),
        ("# a note\n", 1, "found the line '# a note'"),
        ('{"prompt":"x","tokens":3}\n', 1, "found the fields 'prompt, tokens'"),
        ('{"timestamp":0,"a\\nb":1}\n', 1, "found the fields 'timestamp, a\\nb'"),
        ('\n{"record":"header","format":1}\n', 2, "this is a trace, not a workload; check it with: kvproof replay"),
        ('{"timestamp":0\n', 1, "not JSON"),
        (
            '{"timestamp":0,"input_length":0,"output_length":1,"hash_ids":[]}\n',
            1,
            "input_length must be a whole number",
        ),
        ('{"timestamp":0,"input_length":1,"output_length":true,"hash_ids":[]}\n', 1, "output_length must be"),
        ('{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":"0"}\n', 1, "hash_ids must be a list"),
        (AZURE_HEAD + "2023-11-16 18:17:03,1\n", 2, "expected the columns TIMESTAMP, ContextTokens, GeneratedTokens"),
        (AZURE_HEAD + "yesterday,1,1\n", 2, "TIMESTAMP must look like"),
        (AZURE_HEAD + "2023-13-16 18:17:03,1,1\n", 2, "month must be in 1..12"),
        (
            AZURE_HEAD + "2023-11-16 18:17:03,1,-1\n",
            2,
            "GeneratedTokens must be a whole number of 1 or more; found '-1'",
        ),
    ],
)
def test_another_file_is_refused_with_its_place_and_what_was_found(
    tmp_path: Path, content: str, line: int, expected: str
) -> None:
    path = tmp_path / "workload"
    path.write_text(content)
    message = error_of(path)
    assert message.startswith(f"{path}:{line}: ")
    assert expected in message


def test_another_format_names_both_formats(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("prompt,response\n")
    assert "Mooncake JSONL (objects with timestamp, input_length, output_length, hash_ids)" in error_of(path)
    assert "Azure CSV (columns TIMESTAMP, ContextTokens, GeneratedTokens)" in error_of(path)


def test_a_file_without_requests_is_refused(tmp_path: Path) -> None:
    assert "holds no request" in error_of(azure(tmp_path))
    (tmp_path / "empty").write_text("\n\n")
    assert "holds no request" in error_of(tmp_path / "empty")


def test_a_missing_and_a_binary_file_are_named(tmp_path: Path) -> None:
    assert "cannot read the workload" in error_of(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert "not text" in error_of(tmp_path / "binary")
