"""A package that is not installed: commands that need it say how to install it, and so do those that suggest them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from command_line import completed
from repository import ROOT

VIOLATES = ROOT / "conformance" / "gate" / "golden" / "reference-retract-F22862b.jsonl.gz"
WITHOUT = """
import sys
sys.modules[{package!r}] = None
sys.argv = ["kvproof", *{arguments!r}]
from kvproof.conformance.cli.program import main
main()
"""


def without(package: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """The program in an environment that lacks a package."""
    program = WITHOUT.format(package=package, arguments=[str(argument) for argument in arguments])
    return completed([sys.executable, "-c", program])


@pytest.mark.parametrize(
    ("package", "arguments", "install"),
    [
        ("z3", ("prove",), "pip install z3-solver"),
        ("z3", ("prove", "--code", "nowhere"), "pip install z3-solver"),
        ("z3", ("explain", "I9"), "pip install z3-solver"),
        ("typer", ("list", "faults"), "python -m pip install kvproof"),
        ("msgspec", ("replay", VIOLATES), "python -m pip install kvproof"),
        ("hypothesis", ("fuzz", "--seconds", 1), "pip install 'kvproof[fuzz]'"),
        ("cvc5", ("prove", "--certify"), "pip install 'kvproof[certify]'"),
        ("numba", ("replay", VIOLATES, "--checker", "compiled"), "pip install 'kvproof[scale]'"),
        ("prometheus_client", ("watch", VIOLATES, "--metrics-port", 0), "pip install 'kvproof[watch]'"),
        ("ray", ("replay", VIOLATES, "--ray", "local"), "pip install 'kvproof[ray]'"),
    ],
)
def test_a_command_that_lacks_a_package_says_how_to_install_it(
    package: str, arguments: tuple[object, ...], install: str
) -> None:
    done = without(package, *arguments)
    assert done.returncode == 2
    assert install in done.stderr and "Traceback" not in done.stderr and "bug" not in done.stderr


def test_what_is_suggested_runs_or_says_what_to_install_first() -> None:
    done = without("z3", "explain", VIOLATES)
    assert done.returncode == 1
    assert "kvproof prove --fault F22862b  (first: pip install z3-solver)" in done.stdout
    assert "kvproof explain F22862b  (first: pip install z3-solver)" in done.stdout
    assert "first:" not in completed([sys.executable, "-m", "kvproof", "explain", VIOLATES]).stdout
