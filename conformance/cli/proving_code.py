"""`kvproof prove --code` as the command line runs it: proved, shown, saved, and ended with its exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from kvproof.conformance.code_proof.findings import Finding
from kvproof.conformance.code_proof.proving import Proving
from kvproof.conformance.code_proof.targets import Target, targets_of
from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.report import show_code_proof
from kvproof.conformance.report.formats.of_code_proof import events_of_code_proof
from kvproof.conformance.report.formats.stream import Stream
from kvproof.conformance.report.terminal import Progress, bar, note, say, say_lines, tell_lines, write_json
from kvproof.model.cache import Store
from kvproof.model.cache_folder import cache_folder
from kvproof.spec.profiles import Profile

WORDS = {
    "proved": ("PROVED", "bold green", ExitCode.PASS),
    "differs": ("DIFFERS FROM THE RULES", "bold red", ExitCode.VIOLATION),
    "open": ("NOT PROVED", "bold yellow", ExitCode.INCONCLUSIVE),
    "nothing": (
        "NOTHING CHECKED: none of the functions that kvproof knows is there",
        "bold yellow",
        ExitCode.COULD_NOT_RUN,
    ),
}
WIDEST_TABLE = 500


def prove_code(
    text: str, profile_name: str | None, cache: Path | None, *, no_cache: bool, stream: Stream, json_file: Path | None
) -> None:
    """Proves one target, or the two sides of a change. Raises typer.Exit unless all is proved."""
    store = None if no_cache else Store(cache or cache_folder())
    found: list[tuple[Target, list[Finding]]] = []
    for target in targets_of(text):
        profile = target.profile(profile_name)
        say(f"{target.label} against {_rules(profile)}")
        with Progress("proving code") as progress:
            proving = Proving(target, profile, store)
            findings = proving.all(lambda done, of: progress.show(f"{bar(done / max(of, 1))} {done} of {of} functions"))
        found.append((target, findings))
        stream.tell(*events_of_code_proof(findings, target))
        tell_lines([show_code_proof.table(findings, target.place)], at_least=WIDEST_TABLE)
    findings = found[-1][1]
    if len(found) > 1:
        tell_lines([show_code_proof.change_table(found[0][1], findings)], at_least=WIDEST_TABLE)
    say_lines(show_code_proof.explanations(findings, found[-1][0].place))
    if store is not None and store.problem:
        note(store.problem)
    if json_file is not None:
        write_json(json_file, {"targets": [_as_json(target, of_target) for target, of_target in found]})
    _tell_assumptions(findings)
    word, style, code = WORDS[show_code_proof.verdict_of(findings)]
    known = [finding for finding in findings if finding.is_known_fault]
    if known and code == ExitCode.PASS:
        faults = ", ".join(dict.fromkeys(str(finding.instead) for finding in known))
        word, style = f"{word} but for the known faults of the release: {faults}", "bold yellow"
    say(word, style)
    if code != ExitCode.PASS:
        raise typer.Exit(code)


def _rules(profile: Profile | None) -> str:
    return (
        f"the rules of {profile.name}"
        if profile is not None
        else "the model's own rules (choose others with --profile)"
    )


def _as_json(target: Target, findings: list[Finding]) -> dict[str, Any]:
    return {"target": target.label, "functions": show_code_proof.as_json(findings)}


def _tell_assumptions(findings: list[Finding]) -> None:
    """What the verdicts rest on, each once: a proof without it would say more than was shown."""
    assumed = dict.fromkeys(sentence for finding in findings for sentence in finding.assumes)
    if assumed:
        note("every page size, length and state that the invariants allow; assumed: " + "; ".join(assumed))
