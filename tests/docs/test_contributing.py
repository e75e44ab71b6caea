"""What a contributor reads and fills in: files that pages name exist; action, issue forms and hooks fit their schemas."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from command_line import completed
from repository import ROOT

ISSUES = ROOT / ".github" / "ISSUE_TEMPLATE"
TEMPLATE = ROOT / ".github" / "PULL_REQUEST_TEMPLATE.md"
HOOKS = ROOT / ".pre-commit-config.yaml"
PATH = re.compile(r"[\w.-]*/[\w./-]*|[\w-]+\.(?:md|py|ya?ml|toml|txt)")
OUTSIDE = {"found/1/test_finding.py", "test_finding.py", "my_fix.py", "DIR/examples"}
"""Written by the commands of a page."""


def paths_named(page: str) -> set[str]:
    """Paths, from the root of the repository, in the code spans of a page; fenced blocks do not count."""
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    words = {word for span in re.findall(r"`([^`\n]+)`", prose) for word in span.split()}
    return {word for word in words if PATH.fullmatch(word)} - OUTSIDE


def links_in(page: str) -> set[str]:
    targets = re.findall(r"\]\(([^)#\s]+)", page)
    return {target for target in targets if not target.startswith("http")}


def tool(*command: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return completed([sys.executable, "-m", *command], cwd=ROOT, env={**os.environ, **variables})


def exists(path: str) -> bool:
    """A path from the root, or a bare name of a test file."""
    is_test = path.startswith("test_") and "/" not in path
    return any((ROOT / "tests").rglob(path)) if is_test else (ROOT / path).exists()


PAGES = (
    "CONTRIBUTING.md",
    "README.md",
    *(f"docs/{page}.md" for page in ("architecture", "reports", "security", "trust")),
)


@pytest.mark.parametrize("page", PAGES)
def test_every_file_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = paths_named(text)
    assert named | links_in(text)
    assert sorted(path for path in named if not exists(path)) == []
    assert sorted(link for link in links_in(text) if not (ROOT / page).parent.joinpath(link).exists()) == []


def test_a_file_that_is_gone_is_noticed() -> None:
    page = "See `spec/nowhere.py`, `make lint` and `pytest tests/spec`.\n```sh\ncat out/made.py\n```\n[page](docs/gone.md#a)"
    assert paths_named(page) == {"spec/nowhere.py", "tests/spec"}
    assert links_in(page) == {"docs/gone.md"}


def test_where_is_what_answers_at_least_ten_questions_by_file_names() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = text.partition("## Where is what")[2].partition("\n## ")[0].strip().splitlines()[2:]
    answered = [row for row in rows if row.startswith("|") and "?" in row and paths_named(row.split("|")[2])]
    assert len(answered) >= 10


def test_the_checklist_of_the_template_is_that_of_contributing() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    checklist = page.partition("<!-- checklist:begin -->\n")[2].partition("<!-- checklist:end -->")[0]
    assert checklist.startswith("- [ ] ")
    assert TEMPLATE.read_text(encoding="utf-8").endswith(checklist)


A_SCHEMA = ("check_jsonschema", "--builtin-schema")
FORMS = {
    "action.yml": ((*A_SCHEMA, "vendor.github-actions"), "using: composite", "using: compost"),
    ".pre-commit-hooks.yaml": (("pre_commit", "validate-manifest"), "entry:", "entrance:"),
    ".pre-commit-config.yaml": (("pre_commit", "validate-config"), "entry:", "entrance:"),
    ".github/ISSUE_TEMPLATE/config.yml": ((*A_SCHEMA, "vendor.github-issue-config"), "true", "perhaps"),
    **{
        f".github/ISSUE_TEMPLATE/{name}.yml": ((*A_SCHEMA, "vendor.github-issue-forms"), "type:", "sort:")
        for name in ("bug", "new_release", "question")
    },
}
"""Files that another program reads: what judges their form, and how it is damaged."""


@pytest.mark.parametrize("file", FORMS)
def test_a_file_has_the_form_that_its_reader_wants(file: str, tmp_path: Path) -> None:
    judge, right, wrong = FORMS[file]
    assert tool(*judge, ROOT / file).returncode == 0
    (damaged := tmp_path / Path(file).name).write_text((ROOT / file).read_text(encoding="utf-8").replace(right, wrong))
    assert tool(*judge, damaged).returncode == 1


def test_every_issue_form_is_judged() -> None:
    assert {form.relative_to(ROOT).as_posix() for form in ISSUES.glob("*.yml")} <= FORMS.keys()


def test_no_hook_of_ours_is_fetched() -> None:
    assert [repository["repo"] for repository in yaml.safe_load(HOOKS.read_text())["repos"]] == ["local"]


@pytest.mark.skipif(not (ROOT / ".git").exists() or not (ROOT / ".venv").exists(), reason="a clone with its .venv")
@pytest.mark.parametrize(
    ("hook", "file"),
    [
        ("ruff", __file__),
        ("ruff-format", __file__),
        ("issue-forms", ISSUES / "bug.yml"),
        ("action", ROOT / "action.yml"),
    ],
)
def test_a_hook_of_ours_runs_and_passes(hook: str, file: str | Path, tmp_path: Path) -> None:
    done = tool("pre_commit", "run", hook, "--files", file, PRE_COMMIT_HOME=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Passed" in done.stdout
