"""Lines that are taken as columns at once are the events that one reads one by one; what may differ is not taken."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

pytest.importorskip("pyarrow")

from test_trace_io import EVENTS

from kvproof.conformance.columnar_events import batches_of
from kvproof.conformance.columnar_lines import PlainLines
from kvproof.conformance.trace_io import line_of
from kvproof.spec.trace import RECORD, Event, Terms

OPEN = '{"record":"event","seq":0,"action":"open","session":"s"}'
TERMS = dict.fromkeys(Terms.model_fields, 1)
PLAIN_PARAMS = st.dictionaries(st.sampled_from(["last", "inserted"]), st.booleans()) | st.dictionaries(
    st.sampled_from(["seq_len", "tokens"]), st.integers(-5, 2**31 - 1)
)
PAGES = st.lists(st.integers(0, 12) | st.integers(0, 2**31 - 1), max_size=6).map(tuple)
PLAIN = st.fixed_dictionaries(
    {"action": st.sampled_from(["open", "extend", "check"])},
    optional={
        "session": st.sampled_from(["s", "nullable", "ünï"]),
        "turn": st.sampled_from(["a", "b"]),
        "cause": st.integers(-(2**63) + 1, 2**63 - 1),
        "step": st.integers(0, 2**40),
        "row": st.integers(-1, 9),
        "params": PLAIN_PARAMS,
        "alloc": PAGES,
        "free": PAGES,
        "window_free": PAGES,
        "shared": PAGES,
        "free_list": PAGES,
        "after": st.dictionaries(st.sampled_from(["kv_committed_len", "prefix_len"]), st.integers(-3, 2**31 - 1)),
        "terms": st.just(TERMS),
    },
)


def lines_of(events: list[dict[str, Any]]) -> bytes:
    return b"".join(line_of(Event(seq=seq, **fields)) + b"\n" for seq, fields in enumerate(events))


def one_by_one(lines: bytes) -> Any:
    (batch,) = batches_of(RECORD.validate_json(line) for line in lines.split(b"\n")[:-1])
    return batch


def assert_same(lines: bytes, plain: PlainLines) -> None:
    batch = plain.batch(lines)
    if batch is not None:
        batch.validate(full=True)
        assert batch.equals(one_by_one(lines))


@settings(max_examples=300, deadline=None)
@given(first=st.lists(PLAIN, min_size=1, max_size=6), then=st.lists(PLAIN, min_size=1, max_size=6))
def test_plain_events_are_taken_at_once_whatever_fields_came_before(
    first: list[dict[str, Any]], then: list[dict[str, Any]]
) -> None:
    plain = PlainLines()
    for events in (first, then, first):
        lines = lines_of(events)
        assert plain.batch(lines) is not None
        assert_same(lines, plain)


@settings(max_examples=300, deadline=None)
@given(events=st.lists(EVENTS, min_size=1, max_size=4))
def test_any_events_are_the_same_or_not_taken(events: list[dict[str, Any]]) -> None:
    assert_same(lines_of(events), PlainLines())


@pytest.mark.parametrize(
    "lines",
    [
        OPEN,
        "\n",
        OPEN + "\n\n",
        OPEN + OPEN + "\n",
        OPEN + OPEN + "\n" + OPEN + "\n\n",
        "[1]\n",
        '{"record":"end","events":0}\n',
        '{"record":"event","action":"open"}\n',
        '{"record":"event","seq":0}\n',
        '{"seq":0,"action":"open"}\n',
        OPEN.replace("open", "opened") + "\n",
        OPEN.replace('"s"', "null") + "\n",
        OPEN.replace('"s"', r'"\u0073"') + "\n",
        OPEN.replace('"s"', r'"\ud800"') + "\n",
        OPEN.replace('"s"', "1") + "\n",
        OPEN.replace('"s"', '"s","session":"t"') + "\n",
        OPEN.replace('"s"', '"s","pages":1') + "\n",
        OPEN.replace("0", "-1") + "\n",
        OPEN.replace("0", "0.0") + "\n",
        OPEN.replace("0", "00") + "\n",
        OPEN.replace("0", "1e0") + "\n",
        OPEN.replace("0", '"0"') + "\n",
        OPEN.replace("0", str(2**63)) + "\n",
        OPEN.replace("0", "NaN") + "\n",
        OPEN.replace("}", ',"row":2147483648}') + "\n",
        OPEN.replace("}", ',"row":true}') + "\n",
        OPEN.replace("}", f',"cause":{-(2**63)}}}') + "\n",
        OPEN.replace("}", ',"alloc":[1,null]}') + "\n",
        OPEN.replace("}", f',"alloc":[{2**31}]}}') + "\n",
        OPEN.replace("}", ',"alloc":7}') + "\n",
        OPEN.replace("}", ',"terms":{"available":1}}') + "\n",
        OPEN.replace("}", ',"terms":{}}') + "\n",
        OPEN.replace("}", ',"params":{"unheard_of":1}}') + "\n",
        OPEN.replace("}", ',"params":{"last":1}}') + "\n",
        OPEN.replace("}", ',"params":{"seq_len":true}}') + "\n",
        OPEN.replace("}", ',"params":{"last": null}}') + "\n",
    ],
)
def test_what_others_read_in_another_way_is_not_taken(lines: str) -> None:
    assert PlainLines().batch(lines.encode()) is None
    known = PlainLines()
    assert known.batch(f"{OPEN}\n".encode()) is not None
    assert known.batch(lines.encode()) is None


@pytest.mark.parametrize("name", [b"\xff", b"a\tb", b"a\x00b", b"\xed\xa0\x80"])
def test_text_that_is_no_json_string_is_not_taken(name: bytes) -> None:
    line = OPEN.encode().replace(b'"s"', b'"' + name + b'"') + b"\n"
    with pytest.raises(ValidationError):
        RECORD.validate_json(line)
    assert PlainLines().batch(line) is None


def test_spaces_and_another_order_of_fields_are_the_same() -> None:
    line = json.dumps(dict(reversed(json.loads(OPEN).items())), indent=None).encode() + b"\n"
    assert_same(line, PlainLines())
    assert PlainLines().batch(line) is not None
