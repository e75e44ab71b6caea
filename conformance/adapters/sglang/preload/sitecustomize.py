"""Loads the recorder into a server of a release without plugins: Python runs this file at the start of every process that
has its folder on PYTHONPATH (`kvproof record --target sglang-server` puts it there).

It imports nothing of its own accord. When SGLang's scheduler module is imported, its event loop is wrapped. A sitecustomize
that this one hides is run too.
"""

import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType

SCHEDULER = "sglang.srt.managers.scheduler"


class _ThenWrap(Loader):
    """Executes a module with its own loader, then wraps the event loop in it."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> "ModuleType | None":
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        try:
            _wrap_event_loop(module)
        except Exception as error:
            print(f"kvproof records nothing: {type(error).__name__}: {error}", file=sys.stderr)


class _SchedulerFinder(MetaPathFinder):
    """Finds one module as others would, and has its event loop wrapped once it is there."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        if fullname != SCHEDULER:
            return None
        spec = PathFinder.find_spec(fullname, path)  # type: ignore[arg-type]
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenWrap(spec.loader)
        return spec


def _wrap_event_loop(module: ModuleType) -> None:
    import functools

    from kvproof.conformance.adapters.sglang.capture import record_event_loop

    original = module.Scheduler.run_event_loop

    @functools.wraps(original)
    def recorded(scheduler: object, *args: object, **kwargs: object) -> object:
        return record_event_loop(original, scheduler, *args, **kwargs)

    module.Scheduler.run_event_loop = recorded


def _run_hidden_sitecustomize() -> None:
    here = Path(__file__).resolve().parent
    elsewhere = [folder for folder in sys.path if folder and Path(folder).resolve() != here]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


_run_hidden_sitecustomize()
if os.environ.get("KVPROOF_TRACE"):
    sys.meta_path.insert(0, _SchedulerFinder())
