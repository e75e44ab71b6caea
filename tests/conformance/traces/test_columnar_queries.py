"""The queries of docs/columnar.md, as they stand there, on a trace of known content."""

from __future__ import annotations

import re
from typing import Any

import pytest
from repository import DOCS
from trace_events import HEADER

from kvproof.conformance.traces.open_trace import write_trace

PAGE = (DOCS / "columnar.md").read_text(encoding="utf-8")


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
    for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
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


def test_each_query_of_the_page_has_its_answer(answers: list[Any]) -> None:
    of_each_action, taken, that_moved_a_page, hold_less_than_committed = (answer.to_pydict() for answer in answers)
    assert dict(zip(*of_each_action.values(), strict=True)) == {"open": 1, "extend": 3, "finish": 1}
    assert taken == {"event": [1, 4, 2], "pages_sum": [5, 3, 1]}
    assert that_moved_a_page == {
        "seq": [1, 4], "action": ["extend", "extend"], "session": ["t", "s"], "turn": ["a", "c"],
    }  # fmt: skip
    assert hold_less_than_committed == {"seq": [3], "action": ["finish"], "session": ["t"]}
