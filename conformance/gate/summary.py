"""The gate's table in Markdown, for a pull request. Names come from untrusted files, so they are no markup here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvproof.conformance.exit_codes import MEANING, ExitCode
from kvproof.conformance.gate.steps import COULD_NOT, FAILED, OPEN, PASSED, SKIPPED, Outcome
from kvproof.conformance.printable import for_markdown

MARKS = {PASSED: "✅", FAILED: "❌", COULD_NOT: "⚠️", OPEN: "❔", SKIPPED: "➖"}
MOST_PROBLEMS = 20
HEADS = {
    ExitCode.PASS: "passed",
    ExitCode.VIOLATION: "failed",
    ExitCode.COULD_NOT_RUN: "could not run",
    ExitCode.INCONCLUSIVE: "no verdict",
}


def markdown(outcomes: Sequence[Outcome], code: ExitCode, versions: Mapping[str, str], again: str) -> str:
    """`again`: the command that does the same once more."""
    lines = [
        f"## kvproof gate: {HEADS[code]}",
        "",
        "| step | verdict | what was checked | seconds |",
        "| --- | --- | --- | ---: |",
    ]
    for outcome in outcomes:
        detail = for_markdown(outcome.detail)
        lines.append(
            f"| {outcome.name} | {MARKS[outcome.verdict]} {outcome.verdict} | {detail} | {outcome.seconds:.1f} |"
        )
    for outcome in outcomes:
        if outcome.problems:
            lines += ["", f"**{outcome.name}**", ""]
            lines += [f"- {for_markdown(problem)}" for problem in outcome.problems[:MOST_PROBLEMS]]
            if (more := len(outcome.problems) - MOST_PROBLEMS) > 0:
                lines.append(f"- and {more} more")
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines += ["", f"Exit code {int(code)}: {MEANING[code]}. {for_markdown(named)}. Again: {_code(again)}", ""]
    return "\n".join(lines)


def _code(text: str) -> str:
    """A span of code that its content cannot end."""
    line = " ".join(text.split())
    fence = "`"
    while fence in line:
        fence += "`"
    return f"{fence} {line} {fence}" if "`" in line else f"`{line}`"
