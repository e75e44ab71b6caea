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
    except ModuleNotFoundError as error:
        sys.stderr.write(f"error: kvproof needs {error.name}, which is not installed: python -m pip install kvproof\n")
        sys.exit(2)
    except Exception:  # Python would exit with 1, which says that an invariant is broken
        sys.excepthook(*sys.exc_info())
        sys.exit(2)
