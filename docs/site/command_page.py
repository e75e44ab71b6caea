"""The page of all commands, made from the commands themselves while the site is built."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kvproof.conformance.cli.cli import COMMANDS, imported
from kvproof.conformance.exit_codes import MEANING


def command_page() -> str:
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield from (
        "# Commands and exit codes",
        "",
        "Made from the commands when the site is built; `kvproof COMMAND --help` says the same.",
        "",
    )
    yield from ("## Exit codes", "", "| code | meaning |", "| --- | --- |")
    yield from (f"| {code.value} | {meaning} |" for code, meaning in MEANING.items())
    yield from (
        "",
        "Nothing checked is never a pass. A recorded server (`record --target sglang-server`) ends with its own code.",
        "",
    )
    yield from ("## What all commands have", "")
    yield "- `-q` says less, `-v` says on stderr what is done, how long it took, and where an error came from."
    yield "- Results go to stdout, everything about the run to stderr. Colours are for terminals only (`NO_COLOR`: for none)."
    yield "- After two seconds a command says how far it is; Ctrl-C ends it with 130 and leaves no half of a file under its name."
    yield "- `kvproof --install-completion` lets the shell complete commands, options and names (faults, scenarios, profiles)."
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
