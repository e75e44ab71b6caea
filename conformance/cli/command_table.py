"""The commands of the command line: what `kvproof --help` shows, without importing one of them.

Each is a function in a file of `commands/`, which is imported when the command is asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

PROVE = "Prove rules"
TRACES = "Record and judge traces"
FUZZ = "Fuzz"
LIVE = "Follow a live server"
ABOUT = "Look things up"


@dataclass(frozen=True)
class Command:
    """`where`: file in `commands/` and function. `summary`: the first sentence of the function's docstring."""

    group: str
    where: str
    summary: str


COMMANDS: dict[str, Command] = {
    "prove": Command(
        PROVE, "prove:prove", "Prove every invariant for every action, for every page size and any number of sessions."
    ),
    "drive": Command(
        PROVE, "drive:drive", "Make an implementation do what a trace says, and compare what it does, event by event."
    ),
    "gate": Command(
        PROVE,
        "gate:gate",
        "Check what a pull request must pass: the proof, known faults still found, kept traces, and a short fuzz.",
    ),
    "record": Command(
        TRACES,
        "record:record",
        "Record a trace: run a scenario or a workload on an implementation and write what it did with its pages.",
    ),
    "replay": Command(
        TRACES,
        "replay:replay",
        "Check traces event by event and page by page; show the first bad event and the fault that explains it.",
    ),
    "explain": Command(
        TRACES,
        "explain:explain",
        "Explain a violation: the event, the page and its two owners, the rule, the row before and after, the fault behind it.",
    ),
    "info": Command(
        TRACES,
        "info:info",
        "Summarise traces: who wrote them, with which configuration, what they hold, and whether they are complete.",
    ),
    "convert": Command(
        TRACES,
        "convert:convert",
        "Convert a trace between lines (.jsonl) and columns (.kvtrace), or draw it for the viewers of ITF and Perfetto.",
    ),
    "slice": Command(TRACES, "slice:slice_", "Cut a part out of a trace, to look at it or to pass it on."),
    "fuzz": Command(
        FUZZ, "fuzz:fuzz", "Search for a schedule that a target does not survive, and leave it as a test that fails."
    ),
    "shrink": Command(
        FUZZ,
        "shrink:shrink",
        "Make a trace small that violates a rule: fewer sessions, turns, steps and pages, with the same first violation.",
    ),
    "watch": Command(
        LIVE,
        "watch:watch",
        "Follow a trace that is being written; show pools, sessions, rates and the verdict; tell each violation at once.",
    ),
    "sglang-env": Command(
        LIVE,
        "sglang_env:sglang_env",
        "Say how to record a server of the SGLang that is installed beside kvproof, and check that it can be.",
    ),
    "list": Command(
        ABOUT, "list:list_", "List the faults, invariants, actions, profiles or scenarios that kvproof knows."
    ),
}
