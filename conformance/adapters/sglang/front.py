"""Machine code for what every step does (`machine_code`): built when a user asks, used where it was built.

`kvproof sglang-env --build` compiles it with the machine's C compiler, as Triton does with its launchers, into kvproof's cache
folder, under a name that says of which source and for which Python it is. A server's recorder looks whether it is there. Without
it `steps.py` does the same in more time; what is recorded is the same.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sysconfig
import tempfile
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from kvproof.conformance.errors import UserError
from kvproof.model.cache_folder import cache_folder, require_ours

SOURCES = Path(__file__).with_name("machine_code")
MODULE = "kvproof_front"
FLAGS = ("-O2", "-fPIC", "-shared")
SECONDS = 60
"""That a compiler may take."""


def place() -> Path:
    """Where it is, or would be."""
    source = b"".join(path.read_bytes() for path in sorted(SOURCES.glob("*.[ch]")))
    digest = hashlib.sha256(source).hexdigest()[:16]
    return cache_folder() / "front" / f"{MODULE}-{digest}{sysconfig.get_config_var('EXT_SUFFIX')}"


def build() -> Path:
    """Compile it. Raises UserError where that cannot be."""
    compiler, headers = os.environ.get("CC", "cc"), sysconfig.get_paths()["include"]
    at = place()
    try:
        at.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=at.parent) as folder:
            made = Path(folder) / at.name
            command = [*compiler.split(), *FLAGS, f"-I{headers}", str(SOURCES / "front.c"), "-o", str(made)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
            if done.returncode:
                said = next(iter(done.stderr.splitlines()), f"exit code {done.returncode}")
                raise UserError(f"{compiler} could not build the recorder's machine code: {said}")
            _load(made)
            made.replace(at)  # whole or not at all: a server may look for it just now
    except FileNotFoundError as error:
        raise UserError(
            f"no C compiler {compiler!r}: install one, or name it in CC; without it the recorder is Python"
        ) from error
    except (OSError, ImportError, subprocess.TimeoutExpired) as error:
        raise UserError(f"the recorder's machine code cannot be built in {at.parent}: {error}") from error
    return at


def built() -> ModuleType | None:
    """The machine code, if it was built for this source and this Python, and nobody else could have put it there."""
    at = place()
    try:
        for path in (at, at.parent, at.parent.parent):
            require_ours(path)
        return _load(at) if at.exists() else None
    except (ImportError, OSError):  # it is there and cannot be used: so Python does it
        return None


def front_of(*arguments: Any) -> Any | None:
    """A `Front` of these arguments, where it was built."""
    module = built()
    return None if module is None else module.Front(*arguments)


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(MODULE, path, loader=ExtensionFileLoader(MODULE, str(path)))
    assert spec is not None and spec.loader is not None  # a loader is given
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
