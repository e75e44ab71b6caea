"""kvproof: shows that the paged KV cache of an inference server never loses, shares or corrupts a page."""

from importlib import import_module as _import_module
from typing import Any as _Any


def __getattr__(name: str) -> _Any:
    if name == "__version__":  # looked up when it is asked for: reading the metadata takes as long as starting Python
        return _import_module("importlib.metadata").version("kvproof")
    if name == "conformance":  # @kvproof.conformance(...), see conformance/pytest_plugin.py
        return _import_module("kvproof.conformance")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
