"""Makes the environment in which real SGLang releases run without a GPU; a second run finds everything done.

One virtual environment, `.venv-sglang`, holds what the releases share (pins.txt). Each release lies in a folder of its own,
`.venv-sglang/site/<version>`, and is chosen by PYTHONPATH. Everything is installed without dependencies: SGLang's own list
asks for GPU packages, which stand-ins take the place of. About 3 GB and two minutes for
the releases that are tested often; with --all for every release that is known, a minute more.

    python tests/conformance/adapters/sglang/make_env.py [--all] [--python PATH] [RELEASE ...]
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
PINS = Path(__file__).with_name("pins.txt")
ENVIRONMENT = ROOT / ".venv-sglang"
LOCK = ROOT / ".make" / "venv-sglang.lock"
PYTHON_VERSION = "3.11"

# transformers changes with the release, and brings what it was tested with.
SITES = {
    "0.5.10.post1": ("transformers==5.3.0", "tokenizers==0.22.2", "huggingface_hub==1.33.0"),
    "0.5.11": ("transformers==5.6.0", "tokenizers==0.22.2", "huggingface_hub==1.33.0"),
    "0.5.12": ("transformers==5.6.0", "tokenizers==0.22.2", "huggingface_hub==1.33.0"),
    "0.5.14": ("transformers==5.8.1", "tokenizers==0.22.2", "huggingface_hub==1.33.0"),
    "0.5.17": ("transformers==5.12.1", "tokenizers==0.22.2", "huggingface_hub==1.33.0"),
    "0.5.20": ("transformers==5.12.1", "tokenizers==0.22.2", "huggingface_hub==1.33.0"),
    "0.5.23": ("transformers==5.19.0", "tokenizers==0.23.2", "huggingface_hub==1.33.0"),
}
# Before the seed fixes, after them, and the newest one looked at.
TESTED_OFTEN = ("0.5.10.post1", "0.5.11", "0.5.23")


Step = tuple[str, str, Callable[[], object]]
"""Name, content, and what installs it. Done once for each content: a stamp holds what was installed."""


def steps(python: str | None, versions: tuple[str, ...]) -> Iterator[Step]:
    yield f"python-{PYTHON_VERSION}", PYTHON_VERSION, lambda: make_venv(python)
    yield "shared-packages", PINS.read_text(), lambda: pip("install", "--no-deps", "-r", str(PINS))
    for version in versions:
        wanted = (f"sglang=={version}", *SITES[version])
        yield f"sglang-{version}", " ".join(wanted), partial(install_site, version, wanted)
    # The list of packages in pyproject.toml is read when kvproof is installed, so a change of it installs anew; and so does
    # another checkout, whose environment this was.
    yield (
        "kvproof",
        f"{ROOT}\n{(ROOT / 'pyproject.toml').read_text()}",
        lambda: pip("install", "--no-deps", "-e", str(ROOT)),
    )


def make_venv(python: str | None) -> None:
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    subprocess.run([find_python(python), "-m", "venv", str(ENVIRONMENT)], check=True)


def install_site(version: str, wanted: tuple[str, ...]) -> None:
    """Beside its place first: a folder that exists is whole."""
    site = ENVIRONMENT / "site" / version
    beside = site.with_name(f"{version}.part")
    for folder in (site, beside):
        shutil.rmtree(folder, ignore_errors=True)
    pip("install", "--no-deps", "--target", str(beside), *wanted)
    beside.rename(site)


def pip(*arguments: str) -> None:
    command = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": ""})


def find_python(named: str | None) -> str:
    """SGLang's wheels and the pins were chosen for one Python version."""
    candidates = [named] if named else [sys.executable, f"python{PYTHON_VERSION}", "python3", "python"]
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    for candidate in candidates:
        if shutil.which(candidate):
            said = subprocess.run([candidate, "-c", ask], capture_output=True, text=True, check=False).stdout
            if said.strip() == PYTHON_VERSION:
                return candidate
    sys.exit(
        f"error: Python {PYTHON_VERSION} is needed and {' or '.join(map(str, candidates))} is not it: pass --python PATH"
    )


def make(python: str | None, versions: tuple[str, ...]) -> None:
    for name, content, install in steps(python, versions):
        stamp, fingerprint = ENVIRONMENT / "made" / name, hashlib.sha256(content.encode()).hexdigest()
        if stamp.exists() and stamp.read_text() == fingerprint:
            continue
        print(f"{name} ...", flush=True)
        start = time.monotonic()
        stamp.unlink(missing_ok=True)
        try:
            install()
        except subprocess.CalledProcessError as error:
            sys.exit(f"error: step {name} failed with exit code {error.returncode}; run this again to go on from there")
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(fingerprint)
        print(f"{name}: done in {time.monotonic() - start:.0f} s", flush=True)
    print(f"{ENVIRONMENT.name} is ready: SGLang {', '.join(versions)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", help=f"a Python {PYTHON_VERSION} to build on")
    parser.add_argument("releases", nargs="*", metavar="RELEASE", help=f"only these, of {', '.join(SITES)}")
    parser.add_argument("--all", action="store_true", help="every known release, not only those that are tested often")
    arguments = parser.parse_args()
    for release in arguments.releases:
        if release not in SITES:
            parser.error(f"{release} is no known release: {', '.join(SITES)}")
    LOCK.parent.mkdir(exist_ok=True)
    with LOCK.open("w") as lock:
        # Of two who make it at once, `make soak` beside `make mutants`, the second waits and finds it ready.
        fcntl.flock(lock, fcntl.LOCK_EX)
        make(arguments.python, tuple(arguments.releases) or (tuple(SITES) if arguments.all else TESTED_OFTEN))


if __name__ == "__main__":
    main()
