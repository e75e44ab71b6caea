"""`kvproof --version`: the versions of all parts. Loaded when it is asked for: the trace format takes as long as all help."""

from __future__ import annotations

import platform
from importlib import metadata

from kvproof.conformance.report.terminal import say
from kvproof.spec import SPEC_VERSION
from kvproof.spec.trace import TRACE_FORMAT

SOLVERS = (
    ("z3", "z3-solver", "this environment can record, but not prove"),
    ("cvc5", "cvc5", "--certify needs it: pip install 'kvproof[certify]'"),
)
"""Name, package, and what is not possible without it: a server's environment records, and may have no solver."""


def print_versions() -> None:
    say(f"kvproof {metadata.version('kvproof')}")
    say(f"spec {SPEC_VERSION}")
    say(f"trace format {TRACE_FORMAT}")
    for name, package, without in SOLVERS:
        try:
            say(f"{name} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            say(f"{name} not installed: {without}")
    say(f"python {platform.python_version()}")
