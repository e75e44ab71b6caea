"""Does kvproof find wrong rules and altered traces, and let right ones pass? `make referee`.

    PYTHONPATH=tools python -m referee [NAME...] [--folder out/referee] [--page docs/referee.md]

Puts every case, or those that are named, to `kvproof prove --variant` and `kvproof replay`, two at once. Prints what is not as
it must be. Verdicts are kept in FOLDER: a run that was stopped continues, and a changed kvproof begins anew. The files of the
cases stay there, too, to be tried by hand. `--page`: writes all verdicts between the markers of this page. Exit code 1 if a
harmful case is not found or a harmless one does not pass.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from rule_mutation.mutant_results import load, save, write_part

from referee.cases import Case
from referee.forked import answers
from referee.judging import CASES, NO_ANSWER, Judge, Verdict
from referee.results_page import report
from referee.traces.bases import REPOSITORY, Bases

PAGE_PART = "referee"
SOURCES = ("spec", "model", "conformance")
"""What a verdict depends on beside the text of its case."""
CPU_SECONDS = 60
"""Of one case. A case takes a few: only a rule that reaches states without end takes more, and has no verdict then."""
CPU_SECONDS_OF_RECORDING = 600
EVERY = 20
"""Progress is shown after so many verdicts, which are saved one by one."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these cases")
    parser.add_argument("--folder", type=Path, default=Path("out/referee"), help="of files and verdicts")
    parser.add_argument("--page", type=Path, help="the verdicts go between its markers")
    asked = parser.parse_args()
    if unknown := [name for name in asked.names if name not in CASES]:
        parser.error(f"no such case: {', '.join(unknown)}; docs/referee.md lists them")
    if asked.names and asked.page is not None:
        parser.error("--page is for all cases: name none")
    chosen = [CASES[name] for name in asked.names] or list(CASES.values())
    try:
        told = report(chosen, verdicts(chosen, asked.folder))
    except KeyboardInterrupt:
        print(f"\ninterrupted; verdicts so far are in {asked.folder}, the next run continues", file=sys.stderr)
        return 130
    print(told.text.partition("## Variants of rules")[0] if len(chosen) == len(CASES) else told.text)
    if asked.page is not None:
        write_part(asked.page, PAGE_PART, told.text)
    print(f"{len(told.wrong)} of {len(chosen)} cases are not as they must be; their files: {asked.folder}")
    return 1 if told.wrong else 0


def verdicts(cases: Sequence[Case], folder: Path) -> dict[str, Verdict]:
    """The verdict of each case. What an earlier run judged, of the same text by the same sources, is not asked again."""
    path, digest = folder / "verdicts.json", digest_of_sources()
    judge = Judge(folder, folder / "cache", Bases(folder / "bases"))
    # In a process of its own, because what it loads starts threads, and this one forks.
    list(answers(lambda _: judge.bases.record(), [None], CPU_SECONDS_OF_RECORDING))
    results, texts = load(path, digest), {case.name: _hashed(judge.text(case)) for case in cases}
    waiting = [case for case in cases if results.get(case.name, {}).get("text") != texts[case.name]]
    for number, (case, answer) in enumerate(answers(judge.verdict, waiting, CPU_SECONDS), 1):
        verdict = answer or Verdict(NO_ANSWER, f"none within {CPU_SECONDS} s of processor time")
        results[case.name] = {**vars(verdict), "text": texts[case.name]}
        save(path, digest, results)
        if number % EVERY == 0:
            print(f"{number} of {len(waiting)}", file=sys.stderr, flush=True)
    return {case.name: Verdict(results[case.name]["verdict"], results[case.name]["by"]) for case in cases}


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digest_of_sources() -> str:
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
