"""What mkdocs gets beside mkdocs.yml: pages that are made while the site is built, and links out of docs/. README.md is the
first page.

Pages link to files of the repository as a reader of the repository needs it (`../examples/variants/x.py`). In the site such a
file is a page of its own, under the same name: benchmark results as they are, code as a listing.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))  # for as long as mkdocs reads this file
from command_page import command_page  # noqa: E402
from rule_pages import drawn  # noqa: E402

RESULTS = "benchmarks/results/"
LANGUAGES = {".py": "python", ".sh": "bash", ".yml": "yaml", ".yaml": "yaml", ".toml": "toml"}
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)")
"""Also of a picture, in what follows its `!`."""
ITEM = re.compile(r"(?:[-*] |\d+\. )\S")
FENCE = re.compile(r"^(```|~~~)")

DRAWN = {
    "rules.md": "Drawn: [every action](pictures/actions.md), [every invariant](pictures/invariants.md).",
    "faults.md": "Drawn: [every fault](pictures/faults.md).",
}
"""Links to the pages that only the site has, by the page that gets them."""
_page_for = {"README.md": "index.md", "docs": "index.md"}
_listed: dict[str, str] = {}
"""Files of the repository that some page links to: path in it, and the page that stands for it."""


def on_files(files: Files, config: Any) -> Files:
    """Adds the benchmark results, the drawn rules and a listing of every file outside docs/ that a page links to."""
    for path in sorted((ROOT / RESULTS).glob("*.md")):
        _add(files, config, f"benchmarks/{path.name}", path.read_text(encoding="utf-8"))
    _add(files, config, "commands.md", command_page())
    _add(files, config, "index.md", (ROOT / "README.md").read_text(encoding="utf-8"))
    _listed.clear()
    unread = list(files.documentation_pages())
    while unread:
        page = unread.pop()
        for path in _links_out(page.content_string, _source_of(page.src_uri)):
            if path not in _page_for and not path.startswith(RESULTS) and path not in _listed:
                if not (ROOT / path).exists():
                    raise PluginError(f"{page.src_uri} links to {path}, which is not in the repository")
                _listed[path] = f"source/{path}.md"
                unread.append(_add(files, config, _listed[path], _listing(path)))
    for name, text in drawn().items():  # last: it takes half a minute
        _add(files, config, name, text)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links that leave docs/ lead to the page that stands for the file; lists are separated from the lines before them."""
    uri = page.file.src_uri
    if uri in DRAWN:
        markdown = markdown.replace("\n\n", f"\n\n{DRAWN[uri]}\n\n", 1)
    return _with_lists_apart(_rewritten(markdown, uri))


def _add(files: Files, config: Any, name: str, text: str) -> File:
    file = File.generated(config, name, content=text)
    files.append(file)
    return file


def _source_of(uri: str) -> str:
    """Where a page of the site stands in the repository, as far as its links know."""
    if uri == "index.md":
        return "README.md"
    if uri.startswith("benchmarks/"):
        return RESULTS + uri.removeprefix("benchmarks/")
    if uri.startswith("source/"):
        return uri.removeprefix("source/").removesuffix(".md")
    return f"docs/{uri}"


def _page_of(path: str) -> str:
    """The page that stands for a file of the repository; docs/ itself is the root of the site."""
    if path.startswith("docs/") and path.endswith(".md"):
        return path.removeprefix("docs/")
    if path.startswith(RESULTS):
        return "benchmarks/" + path.removeprefix(RESULTS)
    return _page_for.get(path) or _listed.get(path, path)


def _links_out(markdown: str, source: str) -> list[str]:
    """Files of the repository outside docs/, and code inside it, that a page links to."""
    found = []
    for line in _prose(markdown):
        for match in LINK.finditer(line):
            path = _target(match[2], source)
            if path is not None and not (path.startswith("docs/") and not path.endswith(".py")):
                found.append(path)
    return found


def _target(link: str, source: str) -> str | None:
    """The file in the repository that a link means; None if it leaves the repository."""
    if re.match(r"[a-z]+:", link) or link.startswith("/"):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def _rewritten(markdown: str, uri: str) -> str:
    source = _source_of(uri)

    def site(match: re.Match[str]) -> str:
        path = _target(match[2], source)
        page = None if path is None else _page_of(path)
        if path is None or (page == path and not path.startswith("docs/")):
            return match[0]
        leads = posixpath.relpath(page.removeprefix("docs/"), posixpath.dirname(uri) or ".")
        return f"[{match[1]}]({leads}{match[3] or ''})"

    return "\n".join(LINK.sub(site, line) if is_prose else line for line, is_prose in _lines(markdown))


def _with_lists_apart(markdown: str) -> str:
    """A blank line before each list: mkdocs, unlike others, takes one that follows a line of text for its continuation."""
    lines: list[str] = []
    for line, is_prose in _lines(markdown):
        before = lines[-1] if lines else ""
        if is_prose and ITEM.match(line) and before.strip() and not ITEM.match(before) and before[0] not in " #|":
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def _prose(markdown: str) -> list[str]:
    return [line for line, is_prose in _lines(markdown) if is_prose]


def _lines(markdown: str) -> list[tuple[str, bool]]:
    """Lines, and whether each is read for links: not inside a fence."""
    inside, lines = False, []
    for line in markdown.split("\n"):
        is_fence = bool(FENCE.match(line.lstrip()))
        inside ^= is_fence
        lines.append((line, not inside and not is_fence))
    return lines


def _listing(path: str) -> str:
    """A file of the repository as a page."""
    place = ROOT / path
    if place.is_dir():
        names = sorted(child.name for child in place.iterdir() if not child.name.startswith((".", "_")))
        return f"# {path}\n\n" + "\n".join(f"- `{name}`" for name in names) + "\n"
    text = place.read_text(encoding="utf-8")
    if place.suffix == ".md":
        return text
    language = LANGUAGES.get(place.suffix, "text")
    return f"# {path}\n\n~~~{language}\n{text.rstrip()}\n~~~\n"
