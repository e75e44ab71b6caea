"""kvproof: shows that the paged KV cache of an inference server never loses, shares or corrupts a page."""

from importlib import import_module as _import_module
from importlib.metadata import version as _version
from typing import Any as _Any

__version__ = _version("kvproof")


def __getattr__(name: str) -> _Any:
    if name == "conformance":  # @kvproof.conformance(...), see conformance/pytest_plugin.py
        return _import_module("kvproof.conformance")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
