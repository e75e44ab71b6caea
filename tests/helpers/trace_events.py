"""A header, and events as Hypothesis draws them, for tests of whatever reads or writes traces."""

from __future__ import annotations

from typing import get_args

from hypothesis import strategies as st

from kvproof.spec.trace import Config, EventName, Header, Observed, Producer

HEADER = Header(
    spec="1",
    producer=Producer(name="test", version="0", target="none"),
    config=Config(page_size=4, pool_pages=8, rows=2, row_width=32),
)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
COUNTS = st.integers(0, 2**40)
PAGES = st.lists(st.integers(0, 2**31), max_size=4).map(tuple)
EVENTS = st.fixed_dictionaries(
    {"action": st.sampled_from(get_args(EventName))},
    optional={
        "cause": COUNTS,
        "step": COUNTS,
        "session": NAMES,
        "turn": NAMES,
        "row": COUNTS,
        "params": st.dictionaries(NAMES, st.none() | st.booleans() | COUNTS, max_size=3),
        "alloc": PAGES,
        "free": PAGES,
        "shared": st.none() | PAGES,
        "after": st.builds(Observed, inflight=st.none() | st.booleans(), kv_committed_len=st.none() | COUNTS),
        "free_list": st.none() | PAGES,
    },
)
