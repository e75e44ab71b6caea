"""Where the code to prove is: an installed server, a folder, or one or two commits of a local git repository."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from kvproof.conformance.adapters.sglang.code.functions import PACKAGE
from kvproof.conformance.code_proof.engines import PACKAGES
from kvproof.conformance.errors import UserError
from kvproof.model.code.source import Commit, Folder, Tree
from kvproof.spec.profiles import PROFILES, Profile, profile_of

INSTALLED = "installed"
BELOW = ("", "python/")
"""Where a wheel and a checkout have the package."""
GIT_SECONDS = 30.0
FORMS = (
    "a folder that holds the package `sglang` or `sgl_jax`, `installed`, REPO@COMMIT, or REPO@A..B "
    "(without REPO: the repository here)"
)

ANY_PACKAGE = " or ".join(map(repr, PACKAGES))


@dataclass(frozen=True)
class Target:
    """A tree of source, what people call it, and its version where it says one."""

    tree: Tree
    label: str
    version: str | None = None
    prefix: str = ""
    """What stands before a path of the tree to find the file: in a repository from its root, else from here."""

    def place(self, path: str) -> str:
        return f"{self.prefix}{path}"

    def profile(self, name: str | None = None) -> Profile | None:
        """By its name; without one, or by `auto`, that of the release that the target says it is. None: no profile is of it."""
        if name is not None and name != "auto":
            return PROFILES[name]
        return profile_of(f"{PACKAGE} {self.version}") if self.version is not None else None


def targets_of(text: str) -> tuple[Target, ...]:
    """One target, or the two between which a change is. Raises UserError where there is no such code."""
    if text == INSTALLED:
        return (_installed(),)
    if Path(text).is_dir():
        return (_folder(Path(text)),)
    repository, at, commits = text.rpartition("@")
    first, dots, last = commits.partition("..")
    if not at and not dots:
        raise UserError(f"no code to prove at {text!r}: give {FORMS}")
    if dots and not (first and last.strip(".")):
        raise UserError(f"{text!r} names one commit: give two, as in {repository or 'REPO'}@A..B")
    place = Path(repository or ".")
    return tuple(_commit(place, commit) for commit in ((first, last.lstrip(".")) if dots else (commits,)))


def _installed() -> Target:
    found = importlib.util.find_spec(PACKAGE)  # the package itself is not imported
    places = list(found.submodule_search_locations or ()) if found is not None else []
    if not places:
        raise UserError(f"no {PACKAGE} is installed beside kvproof: give {FORMS}")
    try:
        version = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        version = None
    root = Path(places[0]).parent
    return Target(Folder(root), f"installed {PACKAGE} {version or ''}".strip(), version, f"{root}/")


def _folder(folder: Path) -> Target:
    for below in BELOW:
        root = folder / below
        if any((root / package).is_dir() for package in PACKAGES):
            version = _version_in(root)
            return Target(Folder(root), f"{folder}{f', {PACKAGE} {version}' if version else ''}", version, f"{root}/")
    raise UserError(
        f"{folder} holds no package {ANY_PACKAGE}: give the folder above it, as in an unpacked wheel or a checkout"
    )


def _version_in(root: Path) -> str | None:
    """By the metadata of an unpacked wheel."""
    names = (
        re.fullmatch(rf"{PACKAGE}-(.+)\.dist-info", found.name) for found in sorted(root.glob(f"{PACKAGE}-*.dist-info"))
    )
    return next((name[1] for name in names if name), None)


def _commit(repository: Path, commit: str) -> Target:
    found = _git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
    if found is None:
        raise UserError(f"no commit {commit!r} in {repository}: is it a git repository, and was the commit fetched?")
    for below in BELOW:
        if any(_git(repository, "cat-file", "-e", f"{found}:{below}{package}") is not None for package in PACKAGES):
            return Target(Commit(repository, found, below), f"{repository.resolve().name}@{commit}", prefix=below)
    raise UserError(f"{repository}@{commit} holds no package {ANY_PACKAGE}, neither at its root nor in python/")


def _git(repository: Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(repository), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=GIT_SECONDS)
    except FileNotFoundError as error:
        raise UserError("a commit is read by git, which is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"git gave no answer within {GIT_SECONDS:.0f} s in {repository}") from error
    return done.stdout.strip() if done.returncode == 0 else None
