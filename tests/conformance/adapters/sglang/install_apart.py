"""Installs a release of SGLang that is not among the known ones, in a folder of its own beside them."""

from __future__ import annotations

import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from make_env import ENVIRONMENT, pip
from make_env import SITES as KNOWN_SITES
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as canonical

SITES = ENVIRONMENT / "adopted"


def install(release: str) -> tuple[str, ...]:
    """The release and, of what it asks for, the versions that change with it; what is there already stays.

    Raises RuntimeError if pip cannot install it; pip has printed why.
    """
    site, beside = site_of(release), SITES / f"{release}.part"
    if not site.exists():
        print(f"{release}: installing", flush=True)
        shutil.rmtree(beside, ignore_errors=True)
        try:
            _install_into(beside, release)
        except subprocess.CalledProcessError as error:
            raise RuntimeError(f"pip cannot install sglang=={release}; above it says why") from error
        beside.rename(site)
    return tuple(sorted(f"{one.name}=={one.version}" for one in metadata.distributions(path=[str(site)])))


def _install_into(folder: Path, release: str) -> None:
    pip("install", "--no-deps", "--target", str(folder), f"sglang=={release}")
    pip("install", "--no-deps", "--target", str(folder), *asked_for(folder, "sglang", "transformers"))
    asked = asked_for(folder, "transformers", "tokenizers", "huggingface-hub")
    pip("install", "--no-deps", "--target", str(folder), *asked)


def site_of(release: str) -> Path:
    """Where a release is installed, or will be."""
    known = ENVIRONMENT / "site" / release
    return known if known.exists() else SITES / release


def asked_for(site: Path, package: str, *names: str) -> list[str]:
    """What an installed package asks for of these names, as pip takes it: a version that a known release has, if one fits."""
    (found,) = metadata.distributions(name=package, path=[str(site)])
    asked = (Requirement(line) for line in found.requires or ())
    return [as_known(r) for r in asked if r.name in names and "extra" not in str(r.marker)]


def as_known(asked: Requirement) -> str:
    pinned = (Requirement(pin) for pins in reversed(KNOWN_SITES.values()) for pin in pins)
    versions = (str(pin.specifier).removeprefix("==") for pin in pinned if canonical(pin.name) == canonical(asked.name))
    chosen = next((version for version in versions if version in asked.specifier), None)
    return f"{asked.name}=={chosen}" if chosen else f"{asked.name}{asked.specifier}"
