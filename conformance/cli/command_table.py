"""The commands of the command line: what `kvproof --help` shows, without importing one of them.

Each is the function of its name in the file of its name in `commands/`, which is imported when the command is run.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """`summary`: the first sentence of the function's docstring."""

    group: str
    name: str
    summary: str

    @property
    def module(self) -> str:
        """The file in `commands/`."""
        return self.name.replace("-", "_")

    @property
    def function(self) -> str:
        """A function is not named as a builtin is."""
        return f"{self.name}_" if self.name in ("list", "slice") else self.module


GROUPS: dict[str, dict[str, str]] = {
    "Prove rules": {
        "prove": "Prove every invariant for every action, for every page size and any number of sessions.",
        "gate": "Check what a pull request must pass: the proof, known faults still found, golden traces, and a short fuzz.",
    },
    "Record and judge traces": {
        "record": "Record a trace: run a scenario or a workload on an implementation and write what it did with its pages.",
        "replay": "Check traces event by event and page by page; show the first bad event and the fault that explains it.",
        "drive": "Make an implementation do what a trace says, and compare what it does, event by event.",
        "explain": "Explain a violation: the event, the page and its two owners, the rule, the row before and after, the fault.",
        "info": "Summarise traces: producer, configuration, contents, and whether they are complete.",
        "convert": "Convert a trace between lines (.jsonl) and columns (.kvtrace), or draw it for the viewers of ITF and "
        "Perfetto.",
        "slice": "Cut a part out of a trace, to look at it or to share it.",
    },
    "Fuzz": {
        "fuzz": "Search for a schedule that breaks a target, and write a test that fails.",
        "shrink": "Shrink a trace that violates a rule: fewer sessions, turns, steps and pages, the same first violation.",
    },
    "Follow a live server": {
        "watch": "Check a trace while it is written; show pools, sessions, rates and the verdict; report violations at once.",
        "sglang-env": "Say how to record a server of the installed SGLang, and check that it will work.",
    },
    "Look things up": {
        "list": "List the faults, invariants, actions, profiles or scenarios that kvproof knows.",
    },
}
COMMANDS = {
    name: Command(group, name, summary) for group, commands in GROUPS.items() for name, summary in commands.items()
}
