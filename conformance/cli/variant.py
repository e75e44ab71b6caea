"""A maintainer's own rules, read from a process of their own.

A variant's file is code. While it is imported it may change any module, and so the rules, the invariants, the solver or the
cache of the process that imports it. So it is executed in a child, which writes down what its rules compute
(`model/written_rule.py`) and sends that as JSON. All else is done here, with the rules as data: the terms are posed, the solver
is asked, small instances are searched, answers are kept. Nothing of the file runs in this process, and a lie of the child is
only another rule.
"""

from __future__ import annotations

import dataclasses
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import TypeAdapter, ValidationError

from kvproof.conformance.cli.variant_file import WrittenFile, written_file
from kvproof.conformance.errors import UserError, at
from kvproof.conformance.fuzz.child_process import Child
from kvproof.conformance.report.terminal import err
from kvproof.model.cache_folder import FOLDER_VARIABLE
from kvproof.model.variant import Variant
from kvproof.model.written_rule import NotARuleError, action_of, helper_of
from kvproof.spec.actions import ACTIONS

MOST_SECONDS = 60.0
MOST_MEMORY = 8 << 30
"""Bytes of address space of the process."""
MOST_BYTES = 1 << 24
"""Of what it sends."""
LIMITS = f"limits: {MOST_SECONDS:.0f} s and {MOST_MEMORY >> 30} GiB"
_SENT = TypeAdapter(WrittenFile)


def trusted_variant(path: Path, why: str) -> Variant:
    """Say on stderr that the file is executed, then load it."""
    warning = f"WARNING: {path} is Python code and is executed now, with all your rights{why}."
    err().print(warning, style="bold yellow", markup=False, soft_wrap=True)
    return load_variant(path)


def load_variant(path: Path) -> Variant:
    """The rules of a file. Raises UserError for all that is wrong with it."""
    child = Child("kvproof-variant", _serve, path)
    try:
        written = _received(child, path)
    finally:
        child.end()
    if written.mistake:
        raise UserError(written.mistake)
    replaced, helpers = {}, {}
    for name, rule in written.rules.items():
        if name not in ACTIONS:
            raise UserError(f"{path}: no action is named {name!r}")
        with _mistakes_at(path, rule.line):
            replaced[name] = action_of(name, dataclasses.replace(rule, path=str(path)), written.applies)
    for name, helper in written.helpers.items():
        with _mistakes_at(path, helper.line):
            helpers[name] = helper_of(name, dataclasses.replace(helper, path=str(path)))
    return Variant(path.name, replaced, written.summary, helpers)


@contextmanager
def _mistakes_at(path: Path, line: int | None) -> Iterator[None]:
    try:
        yield
    except NotARuleError as error:
        raise UserError(f"{at(path, line)}: {error}") from error


def _received(child: Child, path: Path) -> WrittenFile:
    try:
        if not child.connection.poll(MOST_SECONDS):
            raise UserError(f"{path}: its rules did not come to an end ({LIMITS})")
        return _SENT.validate_json(child.connection.recv_bytes(MOST_BYTES))
    except (EOFError, OSError) as error:
        code = child.exit_code
        raise UserError(f"{path}: its process ended without an answer, with exit code {code} ({LIMITS})") from error
    except ValidationError as error:
        raise UserError(f"{path}: its process sent no rules: {error.errors()[0]['msg']}") from error


def _serve(connection: Connection, path: Path) -> None:
    with suppress(ValueError):  # there is less already
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    with TemporaryDirectory() as nobodys:
        # What the file asks of the solver, or keeps, is kept for nobody.
        os.environ[FOLDER_VARIABLE] = nobodys
        written = written_file(path)
    sys.stdout.flush()
    connection.send_bytes(_SENT.dump_json(written))
