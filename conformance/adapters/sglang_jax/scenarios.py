"""Schedules that bring sglang-jax's scheduler to the places where its faults were.

A scenario drives a `Headless` as clients would and says nothing about what should come out. Chunks, windows and pools
are given in pages, so that the same happens at every page size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvproof.conformance.adapters.sglang_jax.headless import Headless
from kvproof.conformance.adapters.sglang_jax.settings import Settings


@dataclass(frozen=True)
class Scenario:
    summary: str
    run: Callable[[Headless], None]
    chunk_pages: int | None = None
    pool_pages: int = 128
    mixed_chunk: bool = False
    overlap: bool = False
    window_pages: int = 0
    max_running_requests: int = Settings.max_running_requests
    disable_radix_cache: bool = False
    counts_chunks: bool = False
    """each chunk is counted from outside where the checkout counts the first alone, so that this hides nothing behind it"""


def _plain(h: Headless) -> None:
    """Requests with a common prefix, one after the other and at the same time."""
    page = h.settings.page_size
    prefix = h.tokens(2 * page + 1)
    h.send_tokens("a", prefix + h.tokens(5), 4)
    h.drain()
    for name, more, output in (("b", 3, 6), ("c", 9, 2)):
        h.send_tokens(name, prefix + h.tokens(more), output)
        h.run(1)
    h.drain()


def _aligned_end(h: Headless) -> None:
    """Requests whose last sampled token opens a page, and leaves no open page behind without overlap."""
    page = h.settings.page_size
    for number, pages in enumerate((2, 3, 5), start=1):
        prompt = pages * page + 1 if page > 1 else 7
        h.send(f"r{number}", prompt, page if page > 1 else 4)
        h.drain()


def _long_answers(h: Headless) -> None:
    """Answers that are longer than the window: what lies behind it is freed while they run. They too end on a whole page."""
    page = h.settings.page_size
    for number, pages in enumerate((1, 3), start=1):
        h.send(f"r{number}", pages * page + 1, 8 * page)
        h.drain()


def _window_again(h: Headless) -> None:
    """The tree keeps prompts whose pages left the window; requests ask for them again, longer, shorter and in a full pool."""
    page = h.settings.page_size
    prompt = h.tokens(6 * page)
    for number, more in enumerate((1, page + 1, 1, 3 * page), start=1):
        h.send_tokens(f"again{number}", prompt + h.tokens(more), 3 * page)
        h.drain()
    h.send_tokens("shorter", prompt[: 3 * page + 1], 2 * page)
    h.drain()
    for number in range(3):
        h.send(f"other{number}", 5 * page + 1, 4 * page)
    h.send_tokens("last", prompt + h.tokens(1), 4 * page)
    h.drain()


def _retract(h: Headless) -> None:
    """The tree holds what has ended: of that the retract evicts more, to have room for the steps that come."""
    h.send("old", 6 * h.settings.page_size, 2)
    h.drain()
    for name in ("a", "b", "c"):
        h.send(name, 2 * h.settings.page_size + 3, 8)
    h.run(4)
    h.retract()
    h.drain()


def _forced_retracts(h: Headless) -> None:
    """The checkout's test switch is on: it retracts as soon as more than ten requests run, however many pages are free."""
    with h.test_retract():
        for number in range(12):
            h.send(f"r{number}", h.settings.page_size + 1, 2 * h.settings.page_size)
        h.drain()


def _pressure(h: Headless) -> None:
    """The tree holds what has ended, and evicts for what comes and for what grows."""
    page = h.settings.page_size
    for number in range(4):
        h.send(f"old{number}", 3 * page, 2 * page)
        h.drain()
    for number in range(4):
        h.send(f"new{number}", 2 * page + 1, 7 * page)
    h.drain()


def _many_chunks(h: Headless) -> None:
    """A prompt of four chunks, then one of two and a half."""
    chunk = h.settings.chunked_prefill_size or 0
    h.send("long", 4 * chunk, 3)
    h.drain()
    h.send("half", 2 * chunk + chunk // 2, 3)
    h.drain()


def _two_chunks(h: Headless) -> None:
    """Prompts of two chunks beside a request that decodes: there is a row that another may take between the chunks."""
    chunk = h.settings.chunked_prefill_size or 0
    page = h.settings.page_size
    h.send("running", page, 6 * page)
    h.run(2)
    for name in ("first", "second"):
        h.send(name, 2 * chunk, page)
        h.drain()


def _ends_in_a_mixed_batch(h: Headless) -> None:
    """A request ends inside a page while a batch that holds its next step beside the chunk of another is in flight."""
    chunk = h.settings.chunked_prefill_size or 0
    for name, output in (("short", 3), ("shorter", 2)):
        h.send(name, h.settings.page_size + 1, output)
        h.run(2)
        h.send(f"{name}-beside", chunk + 2 * h.settings.page_size, 3)
        h.drain()


def _same_twice(h: Headless) -> None:
    """Two requests with the same prompt and the same answer run side by side: who ends later has only duplicates."""
    page = h.settings.page_size
    prompt, answer = h.tokens(2 * page + page // 2 + 1), h.tokens(3 * page)
    for name in ("first", "second"):
        h.prescribed[name] = list(answer)
        h.send_tokens(name, prompt, 2 * page - page // 2)
    h.drain()


def _overtaken(h: Headless) -> None:
    """While a prompt is prefilled in chunks that end inside pages, a request ends whose tokens are the next of that prompt."""
    page, chunk = h.settings.page_size, h.settings.chunked_prefill_size or 0
    head, answer = h.tokens(page + 1), h.tokens(3 * chunk)
    h.prescribed["ahead"] = list(answer)
    h.send_tokens("ahead", head, 2 * chunk)
    h.run(2 * chunk - 2)  # the chunk that runs beside its last step ends one token before a page does
    h.send_tokens("behind", [*head, *answer[: 2 * chunk + chunk // 2]], 2 * page)
    h.drain()


SCENARIOS: dict[str, Scenario] = {
    "plain": Scenario("requests with a common prefix", _plain),
    "overlap": Scenario("requests with a common prefix, results come late", _plain, overlap=True),
    "chunk-cache": Scenario(
        "requests with a common prefix, on a chunk cache", _plain, disable_radix_cache=True, chunk_pages=64
    ),
    "retract": Scenario("a running request is retracted and runs again", _retract, pool_pages=32),
    "retract-overlap": Scenario(
        "a running request is retracted, results come late", _retract, overlap=True, pool_pages=32
    ),
    "forced-retracts": Scenario(
        "the test switch retracts while more than ten requests run", _forced_retracts, max_running_requests=12
    ),
    "forced-retracts-overlap": Scenario(
        "the same, results come late", _forced_retracts, overlap=True, max_running_requests=12
    ),
    "pressure": Scenario("the pool is small: the tree evicts for what comes and grows", _pressure, pool_pages=24),
    "aligned-end": Scenario("requests that end on a whole page", _aligned_end),
    "same-twice": Scenario("two requests with the same tokens side by side", _same_twice),
    "overtaken": Scenario(
        "a prompt in chunks is overtaken by a request with the same tokens",
        _overtaken,
        chunk_pages=8,
        mixed_chunk=True,
        counts_chunks=True,
    ),
    "late-result": Scenario("requests end while their next step is in flight", _aligned_end, overlap=True),
    "late-result-mixed": Scenario(
        "requests end while a batch with the chunk of another is in flight, on a chunk cache",
        _ends_in_a_mixed_batch,
        chunk_pages=8,
        mixed_chunk=True,
        overlap=True,
        disable_radix_cache=True,
    ),
    "window": Scenario("a sliding window, and answers that outgrow it", _long_answers, window_pages=2),
    "window-late-result": Scenario("a sliding window, results come late", _long_answers, window_pages=2, overlap=True),
    "window-again": Scenario(
        "prompts whose pages left the window are asked for again", _window_again, window_pages=2, pool_pages=32
    ),
    "many-chunks": Scenario("prompts of three and four chunks", _many_chunks, chunk_pages=8),
    "many-chunks-overlap": Scenario(
        "prompts of three and four chunks, results come late", _many_chunks, chunk_pages=8, overlap=True
    ),
    "two-chunks": Scenario("prompts of two chunks beside a running request", _two_chunks, chunk_pages=8),
    "two-chunks-no-tree": Scenario(
        "prompts of two chunks beside a running request, on a chunk cache",
        _two_chunks,
        chunk_pages=8,
        disable_radix_cache=True,
    ),
}
