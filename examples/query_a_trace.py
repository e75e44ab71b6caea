"""A trace in columns, asked in SQL: no notebook, no server. `python examples/query_a_trace.py [TRACE.kvtrace] [--page N]`.

Without a trace it records one first: the conversations of the excerpt, with forced retracts. Needs duckdb and kvproof[scale].
"""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path

import duckdb
import pyarrow

from kvproof.conformance.traces.columnar import ColumnarReader

HERE = Path(__file__).parent
OUT = Path(os.environ.get("OUT", "out/examples"))
KVPROOF = os.environ.get("KVPROOF", "kvproof")

QUERIES = {
    "What happened, how often, and how many pages moved": """
        SELECT action, count(*) AS events,
               sum(list_sum(list_transform(alloc, lambda r: r.count))) AS taken,
               sum(list_sum(list_transform(free, lambda r: r.count))) AS freed
        FROM events GROUP BY action ORDER BY events DESC LIMIT 8""",
    "Turns that held most tokens, and how far what was allocated ran ahead of what was committed": """
        SELECT turn, max(after_kv_committed_len) AS committed,
               max(after_kv_allocated_len - after_kv_committed_len) AS ahead
        FROM events WHERE turn IS NOT NULL GROUP BY turn ORDER BY committed DESC NULLS LAST LIMIT 5""",
    "Events between the creation of a turn and its first prefill": """
        WITH first AS (
          SELECT turn, min(seq) FILTER (action IN ('create', 'arrive')) AS born,
                 min(seq) FILTER (action = 'extend') AS ran
          FROM events WHERE turn IS NOT NULL GROUP BY turn)
        SELECT median(ran - born) AS median_events, max(ran - born) AS longest, count(*) AS turns
        FROM first WHERE ran IS NOT NULL AND born IS NOT NULL""",
    "Sessions whose turns were retracted": """
        SELECT session, count(*) AS retracts FROM events WHERE action = 'retract'
        GROUP BY session ORDER BY retracts DESC, session LIMIT 5""",
}
HISTORY = """
    SELECT seq, action, coalesce(session, turn) AS who, what FROM (
      SELECT seq, action, session, turn, 'taken' AS what, unnest(alloc) AS run FROM events
      UNION ALL SELECT seq, action, session, turn, 'freed', unnest(free) FROM events
      UNION ALL SELECT seq, action, session, turn, 'shared', unnest(shared) FROM events)
    WHERE run.start <= $page AND $page < run.start + run.count ORDER BY seq LIMIT 12"""


def events_of(trace: Path) -> pyarrow.Table:
    """All events of a trace as one table; columns: docs/columnar.md."""
    return pyarrow.Table.from_batches(list(ColumnarReader(trace).batches())).unify_dictionaries()


def recorded() -> Path:
    """A trace to ask, if none was given."""
    OUT.mkdir(parents=True, exist_ok=True)
    trace = OUT / "chat.kvtrace"
    workload = [KVPROOF, "record", "--workload", str(HERE / "mooncake_conversation_excerpt.jsonl"), "--scale", "32"]
    settings = ["--set", "retract_interval=8", "--set", "retract_after_prepare=true"]
    subprocess.run([*workload, *settings, "--quiet", "--out", str(trace)], check=True)
    return trace


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path, nargs="?", help="a .kvtrace (kvproof convert makes one)")
    parser.add_argument("--page", type=int, default=5, help="whose history is shown")
    asked = parser.parse_args()
    trace = asked.trace or recorded()
    database = duckdb.connect()
    database.register("events", events_of(trace))
    for question, query in QUERIES.items():
        print(f"\n{question}")
        print(database.sql(query))
    print(f"\nThe history of page {asked.page}")
    print(database.sql(HISTORY, params={"page": asked.page}))


if __name__ == "__main__":
    main()
