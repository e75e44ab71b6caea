"""The queries of docs/columnar.md, as they stand there, on a trace of known content."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kvproof.conformance.traces.open_trace import write_trace
from kvproof.spec.trace import Config, Header, Producer

PAGE = Path(__file__).parents[3] / "docs" / "columnar.md"
HEADER = Header(
    spec="1",
    producer=Producer(name="test", version="0", target="none"),
    config=Config(page_size=4, pool_pages=8, rows=2, row_width=32),
)


def snippets() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What the last line of each query on the page gives; blocks of two events, so that ids differ between blocks."""
    path = tmp_path_factory.mktemp("queries") / "t.kvtrace"
    with write_trace(path, HEADER) as writer:
        writer.event(action="open", session="s")
        writer.event(action="extend", session="t", turn="a", alloc=(15, 16, 17, 18, 40))
        writer.flush()  # type: ignore[attr-defined]
        writer.event(action="extend", session="t", turn="b", alloc=(30,))
        writer.event(
            action="finish", session="t", turn="b", after={"slot_kv_allocated_len": 4, "slot_kv_committed_len": 5}
        )
        writer.flush()  # type: ignore[attr-defined]
        writer.event(action="extend", session="s", turn="c", alloc=(16, 18, 17))
    names: dict[str, Any] = {}
    found = []
    for text in snippets():
        if "import duckdb" in text or "import polars" in text:
            continue
        *setup, last = text.replace("out/retract.kvtrace", str(path)).strip().rsplit("\n", 1)
        assert len(setup) <= 1
        body = setup[0] if setup else ""
        if re.match(r"\w+ = ", last):
            exec(f"{body}\n{last}", names)
        else:
            exec(body, names)
            found.append(eval(last, names))
    return found


def test_events_of_each_action(answers: list[Any]) -> None:
    table = answers[0].to_pydict()
    assert dict(zip(table["action"], table["seq_count"], strict=True)) == {"open": 1, "extend": 3, "finish": 1}


def test_pages_that_each_event_took(answers: list[Any]) -> None:
    assert answers[1].to_pydict() == {"event": [1, 4, 2], "pages_sum": [5, 3, 1]}


def test_events_that_moved_a_page(answers: list[Any]) -> None:
    assert answers[2].to_pydict() == {
        "seq": [1, 4], "action": ["extend", "extend"], "session": ["t", "s"], "turn": ["a", "c"],
    }  # fmt: skip


def test_slots_that_hold_less_than_they_committed(answers: list[Any]) -> None:
    assert answers[3].to_pydict() == {"seq": [3], "action": ["finish"], "session": ["t"]}


def test_every_query_of_the_page_is_tried(answers: list[Any]) -> None:
    assert len(answers) == 4
