"""A certificate as a folder that a third party can check: each question, what both solvers said of it, cvc5's proof, a manifest.

What is in it is asked and answered by `model/certify.py`. `check.py` in the folder needs nothing of kvproof.
"""

from __future__ import annotations

import hashlib
import re
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from kvproof.conformance.errors import UserError
from kvproof.conformance.report import check_certificate
from kvproof.conformance.report.check_certificate import MANIFEST, QUESTIONS
from kvproof.conformance.whole_file import make_folder, write_whole, writing
from kvproof.model.certify import CVC5_RLIMIT, Certificate, Said
from kvproof.model.questions import RLIMIT, UNKNOWN, Label, Question, expected

HOLE = ":rule trust "
"""The one rule of cvc5's calculus by which a proof may say something without a reason."""

NOT_COVERED = {
    "translation": "that a file says what the rule in spec/ says: kvproof runs the rule on Z3 terms (model/symbolic.py), and "
    "Z3 prints them; kvproof and Z3 are asked to simplify nothing in between",
    "induction": "that the initial state, the step of each action and the lemmas on pages cover every run, page size and "
    "number of sessions: an argument in docs/trust.md, not a question",
    "page lemmas": "that the effects in the files pages-* are those of spec/effects.py: model/pages.py says them once more, on "
    "page identities",
    "liveness": "that a scheduler takes the ways on, and that a rank cannot fall forever: the files liveness-* say only that "
    "there is a way on and that it lowers the rank",
    "explicit search": "all states of small instances, expectations, shortest runs and the list of conditions without a twin: "
    "kvproof's own code, without a file",
    "proofs": "kvproof checks no proof of cvc5's: no checker comes from a package index that it installs from. With ethos, "
    "`python3 check.py --proofs` does",
    "a server": "that an implementation follows the rules: replay its traces",
}
"""What a certificate does not show, and why."""


class Word(BaseModel):
    """What one solver said of one file. `rlimit`: resource units, in each solver's own measure."""

    said: str
    rlimit: int


class Proof(BaseModel):
    """cvc5's proof of one question in its calculus CPC. `holes`: steps without a reason."""

    file: str
    sha256: str
    holes: int


class Asked(BaseModel):
    """One file, what it asks, and the answers. It is `covered` if both solvers said what is expected."""

    file: str
    sha256: str
    question: str
    action: str
    source: str
    about: str
    sentence: str
    expected: str
    z3: Word
    cvc5: Word
    covered: bool
    proof: Proof | None


class Manifest(BaseModel):
    """All that is in the folder. `verdict` is the certificate's: whether the solvers agree. `proof_verdict`: what is proved."""

    format: Literal["kvproof certificate 1"] = "kvproof certificate 1"
    kvproof: str
    rules: str
    verdict: str
    proof_verdict: str
    solvers: tuple[str, str]
    rlimits: tuple[int, int] = (RLIMIT, CVC5_RLIMIT)
    asked: int
    covered: int
    proofs: int
    proofs_with_holes: int
    proofs_checked: int = 0
    not_covered: dict[str, str] = NOT_COVERED
    files: list[Asked]


class CertificateFolder:
    """A new folder; `keep` each question, then `conclude`. Without its manifest a folder certifies nothing."""

    def __init__(self, folder: Path) -> None:
        """Raises UserError where the folder cannot be written, or is not empty."""
        self.folder = folder
        self.asked: list[Asked] = []
        with writing(folder):
            if folder.exists() and any(folder.iterdir()):
                raise UserError(f"{folder}: is not empty; a certificate needs a folder of its own")
            make_folder(folder)
            (folder / QUESTIONS).mkdir(exist_ok=True)

    def keep(self, question: Question, label: Label, text: str, first: Said, second: Said) -> None:
        """Write what was asked, and the proof if there is one."""
        about, sentence = label
        action, source = (question.action.name, question.action.source) if question.action else ("", "")
        name = f"{QUESTIONS}/{len(self.asked):04}-{_slug(question.name)}-{_slug(about)}"
        says = {
            "question": question.name,
            "source": source,
            "asks": f"{about}: {sentence}",
            "expected": expected(label),
        }
        comment = "".join(f"; {key}: {' '.join(value.split())}\n" for key, value in says.items() if value)
        proof = None
        if second.proof:
            steps = f'(reference "{Path(name).name}.smt2")\n{second.proof}\n'
            proof = Proof(file=f"{name}.cpc", sha256=self._write(f"{name}.cpc", steps), holes=steps.count(HOLE))
        asked = Asked(
            file=f"{name}.smt2",
            sha256=self._write(f"{name}.smt2", comment + text),
            question=question.name,
            action=action,
            source=source,
            about=about,
            sentence=sentence,
            expected=expected(label),
            z3=Word(said=first.word, rlimit=first.rlimit),
            cvc5=Word(said=second.word or UNKNOWN, rlimit=second.rlimit),
            covered=first.word == second.word == expected(label),
            proof=proof,
        )
        self.asked.append(asked)

    def conclude(self, rules: str, proof_verdict: str, certificate: Certificate) -> Manifest:
        """Write the manifest and the program that checks the folder against it."""
        proofs = [asked.proof for asked in self.asked if asked.proof]
        manifest = Manifest(
            kvproof=version("kvproof"),
            rules=rules,
            verdict=certificate.verdict,
            proof_verdict=proof_verdict,
            solvers=certificate.solvers,
            asked=len(self.asked),
            covered=sum(asked.covered for asked in self.asked),
            proofs=len(proofs),
            proofs_with_holes=sum(proof.holes > 0 for proof in proofs),
            files=self.asked,
        )
        self._write("check.py", Path(check_certificate.__file__).read_text(encoding="utf-8"))
        self._write(MANIFEST, manifest.model_dump_json(indent=1) + "\n")
        return manifest

    def digest(self) -> str:
        """The SHA-256 of the manifest, which has that of each other file: who knows it knows the whole folder."""
        return hashlib.sha256((self.folder / MANIFEST).read_bytes()).hexdigest()

    def _write(self, name: str, text: str) -> str:
        """The SHA-256 of what is written."""
        write_whole(self.folder / name, [text])
        return hashlib.sha256(text.encode()).hexdigest()


def _slug(words: str) -> str:
    """A part of a file's name."""
    return re.sub(r"[^A-Za-z0-9_]+", "-", words).strip("-")[:48].rstrip("-")
