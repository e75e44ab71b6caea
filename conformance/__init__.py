"""Record, replay, diagnose, fuzz and shrink; and `@kvproof.conformance(...)`, the mark of the pytest plugin."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    """The package is called like the mark, and so it can be called."""

    def __call__(self, **options: Any) -> Any:
        from kvproof.conformance.pytest_plugin import conformance

        return conformance(**options)


sys.modules[__name__].__class__ = _Package
