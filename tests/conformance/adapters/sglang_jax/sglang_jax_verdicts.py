"""The verdict of each scenario on each commit of sglang-jax in a few words, and whether its own memory check noticed.

    PYTHONPATH=tests python tests/conformance/adapters/sglang_jax/sglang_jax_verdicts.py

records everything on the repository that KVPROOF_SGLANG_JAX_REPO names and writes `verdicts.json`, which the tests compare
with, and the table in `docs/sglang-jax.md`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from sglang_jax_checkouts import COMMITS, PAGE_SIZES, RECORD_SCENARIOS, checked_out, run_on
from verdict_page import VerdictPage, Verdicts, markdown, write_json

from kvproof.conformance.adapters.sglang_jax.scenarios import SCENARIOS
from kvproof.conformance.replay.replay import CONFORMS, INCOMPLETE, replay
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.spec.trace import Event

VERDICTS = Path(__file__).with_name("verdicts.json")
PAGE = VerdictPage(
    "sglang-jax.md", "<!-- what is found: written by tests/conformance/adapters/sglang_jax/sglang_jax_verdicts.py -->"
)


def verdict_of(trace: Path) -> str:
    report = replay(trace)
    if report.verdict == CONFORMS:
        words = CONFORMS
    elif report.verdict == INCOMPLETE:
        words = f"incomplete: {report.why.rpartition(': ')[2]}"
    else:
        first = report.first
        names = [fault.id for fault in first.explained_by]
        words = f"violates: {first.event.action}, {names[0] if names else '+'.join(sorted(first.invariants))}"
    return f"{words} (own check fails)" if False in own_checks(trace) else words


def own_checks(trace: Path) -> list[bool]:
    """What the checkout's own memory check said, each time that it was made: whether it passed."""
    events = [record for _, record in read_trace(trace) if isinstance(record, Event) and record.action == "check"]
    return [bool(event.params["own_check_ok"]) for event in events if "own_check_ok" in event.params]


def verdicts_in(folder: Path) -> dict[str, dict[str, str]]:
    """Of the traces of one commit."""
    return {
        scenario: {str(size): verdict_of(folder / f"{scenario}-p{size}.jsonl") for size in PAGE_SIZES}
        for scenario in SCENARIOS
    }


def table(verdicts: Verdicts) -> str:
    """Markdown: per scenario and commit what the replay finds first, page size by page size where that differs."""
    rows = ((name, [_cell(of_commit[name]) for of_commit in verdicts.values()]) for name in SCENARIOS)
    return markdown(list(verdicts), rows)


def _cell(by_page_size: dict[str, str]) -> str:
    sizes: dict[str, list[str]] = {}
    for size, words in by_page_size.items():
        sizes.setdefault("-" if words == CONFORMS else words.removeprefix("violates: "), []).append(size)
    if len(sizes) == 1:
        return next(iter(sizes))
    return "; ".join(f"{'/'.join(of)}: {words}" for words, of in sizes.items())


def main() -> None:
    verdicts: Verdicts = {}
    with tempfile.TemporaryDirectory() as folder:
        for commit in COMMITS:
            traces = Path(folder) / commit.replace(" ", "-")
            sizes = map(str, PAGE_SIZES)
            run_on(
                checked_out(commit, Path(folder)), RECORD_SCENARIOS, "sglang-jax", str(traces), "--page-size", *sizes
            )
            verdicts[commit] = verdicts_in(traces)
    write_json(VERDICTS, verdicts)
    PAGE.write(table(verdicts))


if __name__ == "__main__":
    main()
