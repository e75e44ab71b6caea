"""A finding as the text of an issue for SGLang, in the form that its bug template asks for.

    python tools/issue_text.py given_up --release 0.5.23 --said out/finding.txt

prints a title and four parts: what is wrong and why, how to see it (the scripts themselves, and what they said), and where. It is
for a person to read and send: first search for the issue upstream, and run it on the newest release.
"""

from __future__ import annotations

import argparse
import platform
import re
import sys
from pathlib import Path

FINDINGS = Path(__file__).resolve().parents[1] / "docs" / "findings"
PART = re.compile(r"^\*\*([A-Z][a-z ]+)\.?\*\*\s*", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")
FIX = re.compile(r"\((fixes/\w+\.patch)\)")
LOCAL_IMPORT = re.compile(r"^(?:from|import) (\w+)", re.MULTILINE)
CHECKLIST = """### Checklist

- [ ] I searched related issues but found no solution.
- [ ] The bug persists in the latest version.
- [x] The issue has environment info and a minimal reproducible demo.
- [x] This is a bug report and not a question.
- [x] It is in English."""


def issue(name: str, release: str, said: str) -> str:
    """Raises ValueError for a finding that is fixed, and KeyError where its page lacks a part."""
    page = LINK.sub(r"\1", page_of(name))
    title, _, rest = page.removeprefix("# ").partition("\n")
    what, *others = PART.split(rest)
    parts = dict(zip(others[::2], others[1::2], strict=True))
    if "Fixed" in parts:
        raise ValueError(f"{name} is fixed: {' '.join(parts['Fixed'].split())}")
    return "\n\n".join(
        (
            f"[Bug] {title}",
            CHECKLIST,
            f"### Describe the bug\n\n{what.strip()}\n\n**Cause.** {parts['Cause'].strip()}",
            f"**Possible fix.** {parts['Possible fix'].strip()} With this the script finds nothing any more:",
            *(_fenced(fix.read_text(encoding="utf-8"), "diff") for fix in fixes(name)),
            f"### Reproduction\n\n{_how_to_run(name)}\n\nWhat it says:\n\n{_fenced(said, 'text')}",
            *(_folded(script) for script in scripts(name)),
            f"### Environment\n\nsglang {release}, Python {platform.python_version()}, no GPU. It does not depend on the model.",
        )
    )


def names() -> list[str]:
    return sorted(page.stem for page in FINDINGS.glob("*.md") if page.stem != "README")


def page_of(name: str) -> str:
    return (FINDINGS / f"{name}.md").read_text(encoding="utf-8")


def fixes(name: str) -> list[Path]:
    """The possible fixes that a finding's page links to, as patches."""
    return [FINDINGS / fix for fix in FIX.findall(page_of(name))]


def scripts(name: str) -> list[Path]:
    """The script of a finding, and those beside it that it imports."""
    found = [FINDINGS / f"{name}.py"]
    for script in found:
        imported = (FINDINGS / f"{module}.py" for module in LOCAL_IMPORT.findall(script.read_text(encoding="utf-8")))
        found += [path for path in imported if path.exists() and path not in found]
    return found


def _how_to_run(name: str) -> str:
    files = ", ".join(f"`{script.name}`" for script in scripts(name))
    return (
        f"Save {files} in one folder and run `python {name}.py` where sglang is installed. It drives the scheduler and its event "
        "loop in one process, with random tokens in place of a forward; it takes a minute."
    )


def _folded(script: Path) -> str:
    text = script.read_text(encoding="utf-8").strip()
    return f"<details><summary>{script.name}</summary>\n\n{_fenced(text, 'python')}\n\n</details>"


def _fenced(text: str, language: str) -> str:
    return f"```{language}\n{text.strip()}\n```"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=names())
    parser.add_argument("--release", required=True, help="on which it was run")
    parser.add_argument("--said", type=Path, required=True, help="what the script said there")
    arguments = parser.parse_args()
    try:
        print(issue(arguments.name, arguments.release, arguments.said.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
