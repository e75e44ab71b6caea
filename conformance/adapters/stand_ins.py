"""Stand-ins for the GPU-only packages that SGLang imports eagerly, so that its scheduler can live on a machine without a GPU.

SGLang's scheduling and cache layers are plain Python and torch, but importing them pulls in kernels, grammar backends and
media readers that have no build for a bare CPU. None of them is *called* by what we drive. A finder at the very end of
`sys.meta_path` answers for those names only, so a package that is really installed always wins.

Three traps decide the shape of a stand-in:
- it is used as a decorator, which must give the function back (else a real function vanishes);
- `importlib.util.find_spec("torchvision")` is a question, not an import: answered with yes, transformers takes paths that
  need the real package, so a question is answered with "absent";
- it is used as a pydantic annotation, which asks it for a core schema.
"""

from __future__ import annotations

import importlib.machinery
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from typing import Any

GPU_ONLY_PACKAGES = (
    "sgl_kernel",
    "torchvision",
    "tvm_ffi",
    "xgrammar",
    "llguidance",
    "outlines",
    "outlines_core",
    "openai_harmony",
    "tiktoken",
    "IPython",
    "soundfile",
    "anthropic",
    "mistral_common",
    "datasets",
    "decord",
    "pynvml",
    "smg_grpc_servicer",
    "tml_renderers",
)
# Also what is imported for a device only. Not tvm_ffi, which compiles kernels there: a stand-in would store no KV.
ON_A_DEVICE = (*(name for name in GPU_ONLY_PACKAGES if name != "tvm_ffi"), "flashinfer", "cutlass")


class _StandInType(type):
    """Class-level access to anything gives another stand-in: `xgrammar.StructuralTag.Item` must not fail."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _stand_in(f"{cls.__name__}.{name}")

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __or__(cls, other: Any) -> Any:
        return other

    def __ror__(cls, other: Any) -> Any:
        return other


class _StandIn(metaclass=_StandInType):
    """A class, because stand-ins are subclassed, raised and instantiated; an instance answers every attribute."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        decorates_a_function = len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType)
        return args[0] if decorates_a_function else super().__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        decorates_a_function = len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType)
        return args[0] if decorates_a_function else type(self)()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(self)()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.any_schema()


def _stand_in(name: str) -> type:
    return _StandInType(name.rsplit(".", 1)[-1], (_StandIn,), {"__module__": "kvproof_stand_in"})


class _StandInModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _stand_in(name)
        setattr(self, name, made)
        return made


class _StandInFinder(MetaPathFinder, Loader):
    """Answers imports of the named packages and of everything below them, and no question about them."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self._packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in self._packages or _is_only_asked_for():
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = _StandInModule(spec.name)
        module.__path__ = []
        module.__version__ = "0.0.0"  # type: ignore[attr-defined]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def _is_only_asked_for() -> bool:
    """True below `importlib.util.find_spec`: the caller wants to know, not to import."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("importlib"):
        if frame.f_globals["__name__"] == "importlib.util":
            return True
        frame = frame.f_back
    return False


def stand_for(package: str) -> bool:
    """Whether what was imported under this name is a stand-in."""
    return isinstance(sys.modules.get(package), _StandInModule)


def install(packages: tuple[str, ...] = GPU_ONLY_PACKAGES) -> None:
    """Append the finder once; call it before the first import of what is to be driven."""
    if not any(isinstance(finder, _StandInFinder) for finder in sys.meta_path):
        sys.meta_path.append(_StandInFinder(packages))


@contextmanager
def operators_left_out(package: str) -> Iterator[None]:
    """While SGLang is imported for a CUDA device: it tells torch the shapes of operators that a stand-in does not define."""
    import torch

    original = torch.library.register_fake

    def register_fake(operator: Any, *args: Any, **kwargs: Any) -> Any:
        if stand_for(package) and str(operator).startswith(f"{package}::"):
            return lambda function: function
        return original(operator, *args, **kwargs)

    torch.library.register_fake = register_fake
    try:
        yield
    finally:
        torch.library.register_fake = original
