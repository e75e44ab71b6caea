"""Many schedulers in one process, one after the other: each is built anew, and nothing of it stays.

A server builds one and lives with it. Here a schedule is played on a fresh one, thousands of times: what SGLang pays for in each
build and what no build changes is kept (process groups, the list of processors), and what would outlive a scheduler is left
out (its watchdog, which ends the *parent process* when a scheduler stands still, and its sockets, which wait for a reader when
they are collected). Nothing of it decides about pages. A build takes 20 to 50 ms.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import sys
from collections.abc import Callable
from typing import Any

Maker = Callable[..., Any]


@functools.cache
def prepare() -> None:
    """Once, when SGLang is imported and before the first scheduler is built."""
    state: Any = importlib.import_module("sglang.srt.distributed.parallel_state")
    state.init_model_parallel_group = _made_once(state.init_model_parallel_group)
    state.GroupCoordinator.destroy = lambda self: None
    processors: Any = importlib.import_module("sglang.srt.utils.common")
    processors.parse_lscpu_topology = functools.cache(processors.parse_lscpu_topology)
    put_everywhere("create_scheduler_watchdog", lambda *_args, **_kwargs: None)
    put_everywhere("get_zmq_socket", _NoSocket)


def put_everywhere(name: str, instead: Callable[..., Any]) -> None:
    """In each of SGLang's modules that has a function of this name, also where it was imported."""
    for place, module in list(sys.modules.items()):
        if place.startswith("sglang.") and module is not None and name in vars(module):
            setattr(module, name, instead)


def leave_the_last_one() -> None:
    """SGLang keeps its process groups by name, and refuses to name others: the names are freed, the groups kept.

    0.5.15 also freezes the flags of a process once a scheduler is built.
    """
    state: Any = importlib.import_module("sglang.srt.distributed.parallel_state")
    if state.model_parallel_is_initialized():
        state.destroy_model_parallel()
    context: Any = sys.modules.get("sglang.srt.runtime_context")
    if hasattr(context, "get_flags") and getattr(context.get_flags(), "frozen", False):
        context.reset_context()


@functools.cache
def keep_out_of_garbage_collection() -> None:
    """What the imports made is there for good: to look through it takes half a second, and 0.5.23 does so in each build."""
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # else what is left at the end is reported as leaked


def _made_once(make: Maker) -> Maker:
    groups: dict[str, Any] = {}

    def make_or_find(*args: Any, **kwargs: Any) -> Any:
        key = repr((args, sorted(kwargs.items())))
        if key not in groups:
            groups[key] = make(*args, **kwargs)
        return groups[key]

    return make_or_find


class _NoSocket:
    """Takes what is sent, and has nothing to read."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None
