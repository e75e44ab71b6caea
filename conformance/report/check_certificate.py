"""Check a certificate of kvproof's: its files are those of the manifest, and a solver says of each what is expected.

    python3 check.py                     digests, and what the solvers said when the certificate was made
    python3 check.py z3                  let z3 answer each question anew; cvc5 as well
    python3 check.py --proofs ethos --include=Cpc.eo --require-proof-of-false
                                         let a checker read each proof of cvc5's

A command is run with the name of a file as its last argument. Exits with 0 if all is as expected, 1 if not, 2 if it could not
run.
This program needs Python 3.8 and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
QUESTIONS = "questions"


def digests(folder: Path, files: list[Any]) -> list[str]:
    """What is missing, changed or not in the manifest."""
    named = {asked["file"]: asked["sha256"] for asked in files}
    named.update((asked["proof"]["file"], asked["proof"]["sha256"]) for asked in files if asked["proof"])
    found = {f"{QUESTIONS}/{path.name}": path for path in (folder / QUESTIONS).iterdir()}
    wrong = [f"{name}: not in the manifest" for name in sorted(set(found) - set(named))]
    for name, digest in named.items():
        if name not in found:
            wrong.append(f"{name}: missing")
        elif hashlib.sha256(found[name].read_bytes()).hexdigest() != digest:
            wrong.append(f"{name}: changed")
    return wrong


def not_covered(files: list[Any]) -> list[str]:
    """Questions that a solver did not answer as expected when the certificate was made."""
    said = [(asked, asked["z3"]["said"], asked["cvc5"]["said"]) for asked in files]
    return [
        f"{asked['file']}: not covered: z3 said {z3}, cvc5 said {cvc5}, expected {asked['expected']}"
        for asked, z3, cvc5 in said
        if not z3 == cvc5 == asked["expected"]
    ]


def answers(folder: Path, command: list[str], expected: dict[str, str]) -> list[str]:
    """Files of which the command does not say what is expected, on a line of its own. The counts are printed."""
    counts: Counter[str] = Counter()
    wrong = []
    for name, word in expected.items():
        done = subprocess.run([*command, str(folder / name)], capture_output=True, text=True)
        lines = done.stdout.split("\n")
        said = lines[-2].strip() if len(lines) > 1 else ""
        counts[said] += 1
        if said != word or done.returncode:
            wrong.append(f"{name}: {command[0]} says {(done.stdout + done.stderr).strip()[:300]!r}, expected {word}")
    print(f"{' '.join(command)}: {', '.join(f'{times} {said}' for said, times in counts.most_common())}")
    return wrong


def main(arguments: list[str], folder: Path) -> int:
    """The exit code."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        files = manifest["files"]
        wrong = digests(folder, files) + not_covered(files)
        print(f"{len(files)} questions, made by {' and '.join(manifest['solvers'])}, of {manifest['rules']}")
        is_of_proofs = arguments[:1] == ["--proofs"]
        command = arguments[1:] if is_of_proofs else arguments
        if is_of_proofs:
            expected = {asked["proof"]["file"]: "correct" for asked in files if asked["proof"]}
            unsat = [asked for asked in files if asked["expected"] == "unsat"]
            wrong += [f"{asked['file']}: has no proof" for asked in unsat if not asked["proof"]]
        else:
            expected = {asked["file"]: asked["expected"] for asked in files}
        if command:
            wrong += answers(folder, command, expected)
        elif is_of_proofs:
            raise ValueError("--proofs needs the command of a checker")
        if not files:
            wrong.append("no question: nothing is certified")
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"cannot check {folder}: {error!r}", file=sys.stderr)
        return 2
    for line in wrong:
        print(line)
    print("not as expected" if wrong else "as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).parent))
