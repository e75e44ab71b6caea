"""`kvproof sglang-env`: how to record a server of the installed SGLang, and whether that will work."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from kvproof.conformance.adapters.sglang.releases import RELEASES
from kvproof.conformance.errors import UserError
from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.report.answer import answer_with
from kvproof.conformance.report.terminal import note, tell

GROUP, NAME = "sglang.srt.plugins", "kvproof"


def sglang_env(
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only the exit code, and what is wrong.")] = False,
) -> None:
    """Say how to record a server of the installed SGLang, and check that it will work.

    Exits with 0 if the release is known, 3 if it is unknown, so that the recorder may find nothing, 2 without SGLang.

    Example: [bold]kvproof sglang-env[/bold]
    """
    try:
        sglang = metadata.distribution("sglang")
    except metadata.PackageNotFoundError as error:
        raise UserError(
            "SGLang is not installed in this environment: install kvproof into SGLang's environment "
            "(pip install --no-deps kvproof) and run this there"
        ) from error
    has_plugins = Path(str(sglang.locate_file("sglang/srt/plugins/__init__.py"))).exists()
    is_known = any(release.version == sglang.version for release in RELEASES)
    answer_with(sglang=sglang.version, is_known=is_known, has_plugins=has_plugins)
    if has_plugins:
        _check_plugin()
    _tell_how(sglang.version, is_known, has_plugins)
    if not is_known:
        note("the recorder records what an unknown release shares with known ones; the server's log says what that is")
        raise typer.Exit(ExitCode.INCONCLUSIVE)


def _tell_how(version: str, is_known: bool, has_plugins: bool) -> None:
    tell(f"SGLang {version}: {'known' if is_known else 'not among the known releases'}")
    if has_plugins:
        tell("kvproof's plugin is installed; it is idle unless KVPROOF_TRACE is set")
        tell("to record a server, set in its environment (a name may hold {pid} and {rank}):")
        tell("  export KVPROOF_TRACE=out/trace.jsonl")
    else:
        tell("this release has no plugins; to record a server, start it with kvproof:")
        tell("  kvproof record --target sglang-server --out out/trace.jsonl -- python -m sglang.launch_server ...")
    tell("when the server has stopped: kvproof replay out/trace.jsonl --profile auto")


def _check_plugin() -> None:
    """SGLang finds the plugin by its entry point, and skips it where SGLANG_PLUGINS names others."""
    if not any(entry.name == NAME for entry in metadata.entry_points(group=GROUP)):
        raise UserError(
            "kvproof is here, but not its entry point for SGLang's plugins: install it (pip install --no-deps kvproof) "
            "rather than putting it on PYTHONPATH"
        )
    allowed = os.environ.get("SGLANG_PLUGINS", "")
    if allowed and NAME not in [name.strip() for name in allowed.split(",")]:
        raise UserError(f"SGLANG_PLUGINS={allowed} leaves {NAME} out: add it, or unset the variable")
