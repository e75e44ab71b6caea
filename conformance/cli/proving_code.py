"""`kvproof prove --code` as the command line runs it: proved, shown, saved, and ended with its exit code."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from kvproof.conformance.code_proof.findings import Finding
from kvproof.conformance.code_proof.proving import Proving
from kvproof.conformance.code_proof.targets import targets_of
from kvproof.conformance.exit_codes import ExitCode
from kvproof.conformance.report import show_code_proof
from kvproof.conformance.report.answer import answer_with
from kvproof.conformance.report.formats.of_code_proof import events_of_code_proof
from kvproof.conformance.report.formats.stream import Stream
from kvproof.conformance.report.needs import to_type
from kvproof.conformance.report.terminal import Progress, bar, note, say, say_lines, tell_lines
from kvproof.conformance.whole_file import make_folder, require_writable_file, write_whole, writing
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


@dataclass(frozen=True)
class Saved:
    """What a proof of code leaves beside what it says: each only if it is asked for."""

    html: Path | None = None
    schedules: Path | None = None

    def require_writable(self) -> None:
        """Before the work. Raises UserError."""
        if self.html is not None:
            require_writable_file(self.html)
        if self.schedules is not None:
            with writing(self.schedules):
                make_folder(self.schedules)


def prove_code(
    text: str, profile_name: str | None, cache: Path | None, *, no_cache: bool, stream: Stream, saved: Saved
) -> None:
    """Proves one target, or the two sides of a change. Raises typer.Exit unless all is proved."""
    store = None if no_cache else Store(cache or cache_folder())
    targets = targets_of(text)
    saved.require_writable()
    told: list[show_code_proof.Told] = []
    for target in targets:
        profile = target.profile(profile_name)
        say(f"{target.label} against {_rules(profile)}")
        with Progress("proving code") as progress:
            proving = Proving(target, profile, store)
            findings = proving.all(lambda done, of: progress.show(f"{bar(done / max(of, 1))} {done} of {of} functions"))
        told.append(show_code_proof.Told(target.label, _rules(profile), target.place, findings))
        stream.tell(*events_of_code_proof(findings, target))
        tell_lines([show_code_proof.table(findings, target.place)], at_least=WIDEST_TABLE)
    if len(told) > 1:
        tell_lines([show_code_proof.change_table(told[0].findings, findings)], at_least=WIDEST_TABLE)
    say_lines(show_code_proof.explanations(findings, told[-1].place))
    if store is not None and store.problem:
        note(store.problem)
    word, style, code = _headline(findings)
    answer_with(
        verdict=show_code_proof.verdict_of(findings),
        targets=[{"target": t.label, "functions": show_code_proof.as_json(t.findings)} for t in told],
    )
    _save(saved, told, word, profile)
    _tell_assumptions(findings)
    say(show_code_proof.summary(findings))
    say(word, style)
    if code != ExitCode.PASS:
        raise typer.Exit(code)


def _headline(findings: Sequence[Finding]) -> tuple[str, str, ExitCode]:
    word, style, code = WORDS[show_code_proof.verdict_of(findings)]
    known = [finding for finding in findings if finding.is_known_fault]
    if known and code == ExitCode.PASS:
        faults = ", ".join(dict.fromkeys(str(finding.instead) for finding in known))
        return f"{word} but for the known faults of the release: {faults}", "bold yellow", code
    return word, style, code


def _save(saved: Saved, told: Sequence[show_code_proof.Told], headline: str, profile: Profile | None) -> None:
    """`profile`: of the last target."""
    if saved.html is not None:
        from kvproof.conformance.report.code_page import code_page  # needs the page of a replay

        write_whole(saved.html, [code_page(told, headline)])
    if saved.schedules is not None:
        _save_schedules(told[-1].findings, profile, saved.schedules)


def _save_schedules(findings: Sequence[Finding], profile: Profile | None, folder: Path) -> None:
    from kvproof.conformance.code_proof.loads import save_loads  # needs the fuzzer's targets

    files = save_loads(findings, profile, folder)
    if not files:
        note("no schedule is saved: no difference, or none that a run which SGLang can be driven to leads to")
        return
    say("where this release is installed, these play the differences on it:")
    for file in files:
        say(f"  {to_type(f'kvproof fuzz --replay {shlex.quote(str(file))}', 'hypothesis')}")


def _rules(profile: Profile | None) -> str:
    return (
        f"the rules of {profile.name}"
        if profile is not None
        else "the model's own rules (choose others with --profile)"
    )


def _tell_assumptions(findings: Sequence[Finding]) -> None:
    """What the verdicts rest on, each once: a proof without it would say more than was shown."""
    assumed = dict.fromkeys(sentence for finding in findings for sentence in finding.assumes)
    if assumed:
        note("every page size, length and state that the invariants allow; assumed: " + "; ".join(assumed))
