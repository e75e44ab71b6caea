"""The program `kvproof`. It is here, and imports nothing, so that Ctrl-C is answered while the rest is imported."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line; exits with one of the codes of `exit_codes.py`."""
    try:
        from kvproof.conformance.cli.cli import app

        app()
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        sys.stderr.flush()
        # At once: what was imported half may not end well.
        os._exit(130)
