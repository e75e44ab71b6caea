"""Whose code is mutated, and by which runs it is judged: the reference implementation, and SGLang's streaming sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mutation.mistakes import Accused
from mutation.runs import Run, reference_runs, sglang_runs

OF_THE_CACHE = ("session", "chunk_cache", "radix_cache", "radix", "window_tree", "window_eviction", "request")
OF_THE_POOLS = ("pools", "page_moves", "window_pool")
OF_THE_SCHEDULER = ("state", "scheduler", "prefill", "decode", "results", "request_exit")
TELLS = frozenset({"reporter", "moves"})
"""What tells the observer, and the lists of page ids that it tells."""
NOT_HERE = frozenset({"mamba", "logger"})
"""State of models that are not driven here, and logs."""
PASSES_ON = frozenset(
    {
        "__getattr__",
        "has_slot",
        "req_to_token_pool",
        "token_to_kv_pool_allocator",
        "page_size",
        "disable",
        "available_and_evictable_str",
        "check_hicache_events",
        "flush_write_through_acks",
        "init_load_back",
        "init_metrics_collector",
        "metrics_collector",
        "pretty_print",
        "ready_to_load_host_cache",
        "supports_mamba",
        "take_events",
        "session_held_mamba_slots",
        "_free_slot_mamba",
    }
)
"""Functions of SGLang that only hand on, or that nothing here calls: metrics, a host cache, other kinds of model, a cache that
embeds the sessions."""


@dataclass(frozen=True)
class Subject:
    name: str
    title: str
    accused: Sequence[Accused]
    runs: Callable[[int, int, int], list[Run]]
    """Of a seed, so many schedules by chance, and so many more in which a model runs."""
    has_findings: bool = False
    """What its runs find without a mutant is known and has pages of its own: there only another finding notices a mutant."""
    has_threads: bool = False
    """The code runs in a thread of its own, where nobody sees which lines a run comes to: every mutant is played on every run."""


def reference() -> Subject:
    names = (*OF_THE_CACHE, *OF_THE_POOLS, *OF_THE_SCHEDULER)
    return Subject(
        "reference",
        "the reference implementation",
        [Accused(f"kvproof.impl.{name}", f"impl/{name}.py", TELLS) for name in names],
        reference_runs,
    )


def sglang() -> Subject:
    """Of the release that this interpreter finds. Raises UserError where there is none."""
    from kvproof.conformance.adapters.sglang.engine import import_sglang

    release = import_sglang()
    _leave_alone_what_one_process_says_to_itself()
    module = "sglang.srt.session.streaming_session"
    accused = Accused(
        module,
        f"sglang {release.version} streaming_session.py",
        NOT_HERE,
        lambda name: name.rpartition(".")[2] not in PASSES_ON,
        hides_text=True,
    )
    return Subject(
        "sglang",
        f"streaming sessions of SGLang {release.version}",
        [accused],
        lambda seed, schedules, with_a_model: sglang_runs(seed, schedules),
        has_findings=True,
        has_threads=True,
    )


def _leave_alone_what_one_process_says_to_itself() -> None:
    """A broadcast in a group of one changes nothing, but is done by a thread, and a fork has none of the threads from before."""
    import torch.distributed

    torch.distributed.broadcast = lambda *args, **kwargs: None


SUBJECTS: dict[str, Callable[[], Subject]] = {"reference": reference, "sglang": sglang}


def twins() -> dict[str, Any]:
    """Functions that a mutant may call and its module does not have."""
    from kvproof.impl.chunk_cache import ceil_align, floor_align

    return {"ceil_align": ceil_align, "floor_align": floor_align}
