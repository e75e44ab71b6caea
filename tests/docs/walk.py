"""A page of the documentation as something that can be run: its console blocks are typed, and must answer as the page says.

In a block ```console a line `$ …` is a command. The lines below it are words of its output, in that order, whatever stands
between them and however they are spaced; `(exit N)` is its exit code, 0 where none is said. A block with `title="FILE"` is
that file.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w*)(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r'title="([^"]+)"')
EXIT = re.compile(r"^\(exit (\d+)\)$")
SECONDS = 300


@dataclass
class Command:
    """What is typed, and what the page says comes of it."""

    typed: str
    exit_code: int = 0
    words: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class File:
    name: str
    text: str


def steps(page: str) -> Iterator[Command | File]:
    """What a reader of the page does, in order."""
    for block in BLOCK.finditer(page):
        kind, more, text = block.groups()
        if kind == "console":
            yield from _commands(text)
        elif title := TITLE.search(more):
            yield File(title[1], text)


def _commands(text: str) -> Iterator[Command]:
    command: Command | None = None
    for line in text.splitlines():
        if line.startswith("$ "):
            if command is not None:
                yield command
            command = Command(line[2:])
        elif command is None:
            raise ValueError(f"a console block begins with a command, not with {line!r}")
        elif code := EXIT.match(line):
            command.exit_code = int(code[1])
        else:
            command.words.append(line)
    if command is not None:
        yield command


def walk(page: Path, folder: Path) -> int:
    """Do what a page says in a folder; the number of commands. Raises AssertionError where something else comes of it."""
    (folder / "examples").symlink_to(ROOT / "examples")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "200"}
    count = 0
    for step in steps(page.read_text(encoding="utf-8")):
        if isinstance(step, File):
            (folder / step.name).write_text(step.text, encoding="utf-8")
            continue
        done = subprocess.run(
            ["bash", "-c", step.typed], cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
        said = f"$ {step.typed}\n{done.stdout}{done.stderr}"
        assert done.returncode == step.exit_code, f"exit {done.returncode}, the page says {step.exit_code}\n{said}"
        missing = first_missing(step.words, done.stdout + done.stderr)
        assert missing is None, f"{page.name} says {missing!r} here:\n{said}"
        count += 1
    return count


def first_missing(words: list[str], output: str) -> str | None:
    """The first line of the page that the output has not, after those before it."""
    rest = " ".join(output.split())
    for line in words:
        _, found, rest = rest.partition(" ".join(line.split()))
        if not found:
            return line
    return None
