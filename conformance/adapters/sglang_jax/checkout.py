"""Finds the checkout of sglang-jax that the user names, and imports its scheduler from there.

Its scheduler imports a server's whole world: sockets, tokenizers, web frameworks, models. None of that is called by what is
driven here, so packages that are not installed get stand-ins; jax and numpy are the real ones.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from kvproof.conformance.adapters import stand_ins
from kvproof.conformance.errors import UserError

CHECKOUT = "KVPROOF_SGLANG_JAX"
NOT_NEEDED = (
    "PIL",
    "aiohttp",
    "fastapi",
    "flax",
    "httpx",
    "huggingface_hub",
    "llguidance",
    "modelscope",
    "msgpack",
    "msgspec",
    "omegaconf",
    "orjson",
    "partial_json_parser",
    "pathwaysutils",
    "psutil",
    "pybase64",
    "requests",
    "safetensors",
    "setproctitle",
    "tqdm",
    "transformers",
    "uvicorn",
    "uvloop",
    "yaml",
    "zmq",
)
HINT = f"set {CHECKOUT} to a work tree of sglang-jax (the folder that holds python/sgl_jax)"


def import_scheduler() -> ModuleType:
    """The module of the scheduler, from the checkout that the environment names."""
    root = checkout()
    if importlib.util.find_spec("jax") is None:
        raise UserError(
            "sglang-jax needs jax, which is not installed here: `make test-sglang-jax` makes an environment"
        )
    os.environ["JAX_PLATFORMS"] = "cpu"
    stand_ins.install(NOT_NEEDED)
    sys.path.insert(0, str(root / "python"))
    try:
        return importlib.import_module("sgl_jax.srt.managers.scheduler")
    except ImportError as error:
        raise UserError(f"{root}: its scheduler cannot be imported: {error}") from error


def checkout() -> Path:
    named = os.environ.get(CHECKOUT)
    if not named:
        raise UserError(f"no checkout of sglang-jax was named: {HINT}")
    root = Path(named)
    if not (root / "python" / "sgl_jax").is_dir():
        raise UserError(f"{CHECKOUT}={named} holds no python/sgl_jax: {HINT}")
    return root.resolve()
