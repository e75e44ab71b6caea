"""The page of all commands, made from the commands themselves while the site is built."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kvproof.conformance.cli.cli import COMMANDS, imported


def command_page() -> str:
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield from (
        "# Commands",
        "",
        "Generated from the commands. `kvproof COMMAND --help` says the same. [Exit codes](trust.md#exit-codes).",
        "",
    )
    yield from ("## All commands", "")
    yield "- `-q` prints less. `-v` prints on stderr each step, its time, and the source of an error."
    yield "- Results go to stdout, messages about the run to stderr. Only terminals get colours (`NO_COLOR` turns them off)."
    yield (
        "- `--json FILE` writes the result as `{command, exit_code, verdict, ...}`, also where a command could not run "
        "(`error`). `--json -` writes it to stdout, and everything else to stderr."
    )
    yield "- After two seconds a command shows its progress. Ctrl-C ends it with 130 and leaves no unfinished file."
    yield "- `kvproof --install-completion` makes the shell complete commands, options and names (faults, scenarios, profiles)."
    yield ""
    for group in dict.fromkeys(entry.group for entry in COMMANDS.values()):
        yield from (f"## {group}", "")
        for name in (name for name, entry in COMMANDS.items() if entry.group == group):
            yield from _command(name, imported(name))


def _command(name: str, command: Any) -> Iterator[str]:
    yield from (f"### kvproof {name} {{ #{name} }}", "")
    for paragraph in command.help.split("\n\n"):
        yield from (_plain(paragraph.replace("\n", " ")), "")
    yield from ("| option | meaning |", "| --- | --- |")
    for option in command.params:
        if option.param_type_name == "argument":
            shown = option.metavar or option.name.upper()
        else:
            takes = "" if getattr(option, "is_flag", False) else f" {option.metavar or option.name.upper()}"
            shown = ", ".join((*option.opts, *option.secondary_opts)) + takes
        yield f"| `{shown.replace('|', '/')}` | {_plain(option.help or '')} |"
    yield ""


def _plain(text: str) -> str:
    """Without the marks that rich reads."""
    text = re.sub(r"\[bold\](.*?)\[/bold\]", r"`\1`", text)
    return text.replace("\\[", "[")
