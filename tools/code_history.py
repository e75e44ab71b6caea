"""What a gate by proof would have stopped: SGLang's functions proved before and after each commit that changed its session code.

    PYTHONPATH=tools python -m code_history REPOSITORY [--since DATE] [--fixes] [--page FILE]

REPOSITORY is a local git repository with upstream's history. The rules are the model's own, whatever release a commit became part
of. Answers are kept, so a run that is ended continues where it was.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kvproof.conformance.code_proof.findings import Finding, in_full
from kvproof.conformance.code_proof.proving import Proving
from kvproof.conformance.code_proof.targets import targets_of
from kvproof.conformance.errors import UserError
from kvproof.conformance.report.show_code_proof import change_of
from kvproof.model.cache import Store
from kvproof.model.cache_folder import cache_folder
from kvproof.model.code.claims import ABSENT, DIFFERS, PROVED
from kvproof.model.code.source import Commit, Module

FILES = (
    "python/sglang/srt/mem_cache/session_aware_cache.py",
    "python/sglang/srt/session/streaming_session.py",
    "python/sglang/srt/session/session_controller.py",
    "python/sglang/srt/managers/session_controller.py",
)


@dataclass(frozen=True)
class Fix:
    """What a pull request says that was wrong, and the claims about the functions in which it was."""

    wrong: str
    claims: tuple[str, ...]


CLOSES = ("close", "defer_close")
ABORTS = ("detach", "abort_first", "abort_nth", "abort_first, released", "abort_nth, released")
SEEDS = {
    20070: Fix(
        "R is handed on as the length of the prefix; held tokens are not rounded up", ("match_slot", "check, slots")
    ),
    20476: Fix("a match takes the row from the slot; a chunk is not kept", ("match_slot", "stash")),
    20557: Fix("logprobs from the begin cut the key of a match to nothing", ("match_slot",)),
    21875: Fix("a close frees the KV of a turn that runs; a turn that is too long gets the slot", (*CLOSES, "detach")),
    22213: Fix("a slot that is lent counts as held", ("check, slots",)),
    22753: Fix("a queued turn's slot does not count as held", ("check, slots",)),
    22790: Fix("what a turn that is aborted leaves; no marker of a turn in flight", (*ABORTS, "create", "refuse")),
    22862: Fix("the tail behind the prefix is not freed", ("match_slot",)),
    22897: Fix("the overshoot of a round that ends is not cut", ("finish", "finish, released")),
    22900: Fix("the window cursor stays behind the cut", ("finish", "finish, released")),
    22651: Fix("a round of speculation claims no position", ("prepare_round", "result", "finish", "finish, released")),
    22735: Fix("a close matches the prefix again", ("close, slot",)),
}
"""Pull requests that fixed a bug of pages, rows or lengths, and from which the fault catalogue was made."""
MOST_SENTENCES = 3
CHANGED, FIXED = "changed SGLang's session code", "fixed a known bug"
NO_CACHE_YET = "no session cache that is known"


@dataclass(frozen=True)
class Change:
    """A commit, and the findings before and after it. None: the tree has nothing to prove, or cannot be read."""

    commit: str
    date: str
    subject: str
    before: list[Finding] | None
    after: list[Finding] | None

    @property
    def pull_request(self) -> int | None:
        return pull_request_of(self.subject)

    def verdicts(self) -> Iterator[Turned]:
        """What became of each function."""
        old, new = ({finding.rule: finding for finding in of or ()} for of in (self.before, self.after))
        for rule in dict.fromkeys([*old, *new]):
            before, after = (in_full(of[rule]) if rule in of else ABSENT for of in (old, new))
            said = [[d.sentence for d in of[rule].differences] if rule in of else [] for of in (old, new)]
            gone = tuple(sentence for sentence in said[0] if sentence not in said[1])
            yield Turned(rule, change_of(old.get(rule), new.get(rule)), before, after, gone)


def pull_request_of(subject: str) -> int | None:
    found = re.search(r"\(#(\d+)\)$", subject)
    return int(found[1]) if found else None


@dataclass(frozen=True)
class Turned:
    """A function's verdicts before and after a commit; `gone`: in what it differed before, and does not any more."""

    rule: str
    change: str
    before: str
    after: str
    gone: tuple[str, ...]

    @property
    def is_one(self) -> bool:
        return self.before != self.after or "another way" in self.change

    @property
    def words(self) -> str:
        return self.change if self.before == self.after else f"{self.before} → {self.after}"


def commits(repository: Path, since: str) -> list[tuple[str, str, str]]:
    """Hash, date and subject of each commit that touched the session code or fixed a known bug, the first one first."""
    subjects = [f"--grep=(#{number})$" for number in SEEDS]
    found = dict.fromkeys([*_log(repository, since, "--", *FILES), *_log(repository, since, *subjects)])
    return [(commit, date, subject) for _, commit, date, subject in sorted(found, key=lambda one: one[0])]


def _log(repository: Path, since: str, *chosen: str) -> Iterator[tuple[int, str, str, str]]:
    """Commits with the second of each."""
    form = "--format=%ct%x09%h%x09%ad%x09%s"
    command = ["git", "-C", str(repository), "log", "--reverse", f"--since={since}", "--date=short", form, *chosen]
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        second, commit, date, subject = line.split("\t", 3)
        yield int(second), commit, date, subject


def changes(repository: Path, since: str, store: Store) -> Iterator[Change]:
    """Of each commit the findings on functions that it can have changed: they rest on something whose text is another one."""
    known: dict[str, Finding] = {}

    for commit, date, subject in commits(repository, since):
        changed = functions_changed(repository, commit)

        def is_asked(name: str, changed: set[str] = changed) -> bool:
            return name not in known or not known[name].rests_on or not changed.isdisjoint(known[name].rests_on)

        before, after = (findings_at(repository, at, store, is_asked) for at in (f"{commit}~1", commit))
        known.update((finding.rule, finding) for finding in after or ())
        yield Change(commit, date, subject, before, after)


def fixes(repository: Path, since: str, store: Store) -> Iterator[Change]:
    """Of each fix of a known bug the findings on the functions that had it."""
    for commit, date, subject in commits(repository, since):
        number = pull_request_of(subject)
        if number in SEEDS:
            names = SEEDS[number].claims
            before, after = (findings_at(repository, at, store, names.__contains__) for at in (f"{commit}~1", commit))
            yield Change(commit, date, subject, before, after)


def findings_at(
    repository: Path, commit: str, store: Store, wanted: Callable[[str], bool] = lambda name: True
) -> list[Finding] | None:
    try:
        [target] = targets_of(f"{repository}@{commit}")
        return Proving(target, None, store, runs=False).all(wanted=wanted) or None
    except UserError:
        return None


def functions_changed(repository: Path, commit: str) -> set[str]:
    """`path:Class.function` of each whose text a commit changed, `path:` where something outside of functions did; `path:*`."""
    command = ["git", "-C", str(repository), "diff-tree", "--root", "-r", "--no-commit-id", "--name-only", commit]
    paths = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    found: set[str] = set()
    for path in (path for path in paths if path.endswith(".py")):
        old, new = (_texts(Commit(repository, at).read(path)) for at in (f"{commit}~1", commit))
        changed = {name for name in {*old, *new} if old.get(name) != new.get(name)}
        found |= {f"{path.removeprefix('python/')}:{name}" for name in (*changed, "*")}
    return found


def _texts(source: str | None) -> dict[str, str]:
    """The text of each function of a file, without its form; under the empty name what stands outside of them."""
    if source is None:
        return {}
    module = Module("", "", source)
    return {**{name: ast.dump(node) for name, node in module.by_name.items()}, "": module.outline}


def page(found: list[Change], last: list[Finding], did: str = CHANGED) -> str:
    """The history as Markdown. `last`: all functions after the last commit. `did`: what these commits have done."""
    dates = [change.date for change in found]
    proved = [c for c in found if c.after is not None]
    lines = [
        "<!-- Written by `python -m code_history`: change that, not this page. -->",
        "",
        "# What a gate by proof would have stopped",
        "",
        f"`kvproof prove --code` on each of the {len(found)} commits that {did} from {min(dates)} to",
        f"{max(dates)}, and on its parent. {len(proved)} of them have a session cache that kvproof knows. The rules are the",
        "model's own. A function is asked where the commit changed it or something that it rests on. It *differs* where",
        "a path does not do what its rule says. Known faults (S0511a: a retract ends the turn) and rules of other releases are",
        "named where a function does exactly what they say.",
        "",
        *_stopped(found),
        "## Fixes of known bugs",
        "",
        "Each row is one function that had the bug. *Before* and *after* are its verdicts on the parent and on the fix.",
        "",
        "| pull request | date | what was wrong | function | before | after | what was not so before |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    by_number = {change.pull_request: change for change in found}
    lines[-2:-2] = [*_counted(by_number), ""]
    for number, fix in SEEDS.items():
        lines += _fix(number, fix, by_number.get(number))
    lines += ["", "## All changes of a verdict", ""]
    lines += ["| commit | date | change | functions | verdict |", "| --- | --- | --- | --- | --- |"]
    for change in found:
        rules: dict[str, list[str]] = {}
        for turned in change.verdicts():
            if turned.is_one:
                rules.setdefault(turned.words, []).append(f"`{turned.rule}`")
        where = f"| {change.commit} | {change.date} | {_cell(change.subject)}"
        lines += [f"{where} | {', '.join(names)} | {words} |" for words, names in rules.items()]
    lines += ["", "## At the end", "", "| function | verdict |", "| --- | --- |"]
    lines += [f"| `{finding.rule}` | {in_full(finding)} |" for finding in last]
    return "\n".join(lines) + "\n"


def _stopped(found: list[Change]) -> list[str]:
    """The commits after which a function that was proved differs."""
    rows = [
        f"| {change.commit} | {change.date} | {_cell(change.subject)} | `{turned.rule}` | {turned.after} |"
        for change in found
        for turned in change.verdicts()
        if turned.before == PROVED and turned.after.startswith(DIFFERS)
    ]
    head = ["| commit | date | change | function | after it |", "| --- | --- | --- | --- | --- |"]
    return ["## Commits after which a proved function differs", "", *head, *rows, ""]


def _some(sentences: tuple[str, ...]) -> str:
    more = len(sentences) - MOST_SENTENCES
    return "; ".join(sentences[:MOST_SENTENCES]) + (f"; {more} more" if more > 0 else "")


def _counted(by_number: Mapping[int | None, Change]) -> Iterator[str]:
    """Of how many fixes the parent is refuted, and how many of these are proved."""
    asked: list[list[Turned]] = []
    for number, fix in SEEDS.items():
        if number in by_number:
            asked.append([turned for turned in by_number[number].verdicts() if turned.rule in fix.claims])
    refuted = [turned for turned in asked if any(one.before.startswith(DIFFERS) for one in turned)]
    proved = [turned for turned in refuted if all(one.after == PROVED for one in turned)]
    yield f"The parents of {len(refuted)} of {len(asked)} fixes are refuted. Of these {len(refuted)} fixes {len(proved)} are"
    yield "proved in all functions below."


def _fix(number: int, fix: Fix, change: Change | None) -> list[str]:
    if change is None:
        return [f"| #{number} | | {fix.wrong} | not in this history | | | |"]
    where = f"| #{number} | {change.date} | {fix.wrong}"
    turned = {one.rule: one for one in change.verdicts()}
    return [
        f"{where} | `{name}` | {one.before} | {one.after} | {_some(one.gone)} |"
        for name in fix.claims
        if (one := turned.get(name)) is not None
    ] or [f"{where} | {NO_CACHE_YET} | | | |"]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


def main() -> None:
    parser = argparse.ArgumentParser(prog="code_history", description=__doc__.partition("\n")[0])
    parser.add_argument("repository", type=Path)
    parser.add_argument("--since", default="2026-02-01")
    parser.add_argument(
        "--fixes", action="store_true", help="only fixes of known bugs, and the functions that had them"
    )
    parser.add_argument("--page", type=Path, help="write the page here")
    asked = parser.parse_args()
    found, store = [], Store(cache_folder())
    for change in (fixes if asked.fixes else changes)(asked.repository, asked.since, store):
        found.append(change)
        verdicts = list(change.verdicts())
        words = ", ".join(f"{one.rule}: {one.change}" for one in verdicts if one.change != f"{PROVED} before and after")
        print(
            f"{change.commit} {change.subject}\n    {words or ('all proved before and after' if verdicts else NO_CACHE_YET)}",
            flush=True,
        )
    if not found:
        parser.exit(2, "nothing checked: no commit of that time touched the session code\n")
    if asked.page is not None:
        [target] = targets_of(f"{asked.repository}@{found[-1].commit}")
        asked.page.write_text(
            page(found, Proving(target, None, store, runs=False).all(), FIXED if asked.fixes else CHANGED),
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
