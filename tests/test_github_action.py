"""What the commands of the GitHub action and the pre-commit hooks do, run here. Their form: `docs/test_contributing.py`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import completed
from repository import ROOT

from kvproof.conformance.gate.golden_traces import SHIPPED

ACTION = ROOT / "action.yml"
HOOKS = ROOT / ".pre-commit-hooks.yaml"
QUICK = "proof\nkills\nfuzz"


def action() -> dict[str, Any]:
    return yaml.safe_load(ACTION.read_text(encoding="utf-8"))


def step(name: str) -> dict[str, Any]:
    return next(step for step in action()["runs"]["steps"] if step["name"] == name)


def run_step(name: str, folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """The command of a step under bash, with its inputs as GitHub hands them over: as variables."""
    variables = dict.fromkeys(step(name)["env"], "") | {"PYTHON": sys.executable} | inputs
    of_github = {"GITHUB_OUTPUT": str(folder / "output"), "GITHUB_ACTION_PATH": str(ROOT)}
    environment = {**os.environ, "GITHUB_STEP_SUMMARY": str(folder / "summary.md"), **of_github, **variables}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step(name)["run"]]
    return completed(command, cwd=folder, env=environment)


def gate(folder: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    defaults = {"OUT": "out", "TARGET": "reference", "FUZZ_SECONDS": "1", "SEED": "0", "BUDGET": "60", "SKIP": QUICK}
    return run_step("gate", folder, **{**defaults, "KVPROOF_CACHE": str(folder / "cache"), **inputs})


def test_no_input_is_text_of_a_script() -> None:
    for each in action()["runs"]["steps"]:
        assert "${{" not in each.get("run", "")
        assert "run" not in each or each["shell"] == "bash"


def test_every_input_is_used_and_every_use_is_an_input() -> None:
    text = ACTION.read_text()
    for name in action()["inputs"]:
        assert f"inputs.{name} " in text or f"inputs.{name})" in text, name
    used = {part.split()[0].rstrip(")") for part in text.split("inputs.")[1:]}
    assert used == set(action()["inputs"])


def test_every_option_of_the_gate_that_a_pull_request_needs_is_an_input() -> None:
    given = set(step("gate")["env"])
    assert {"SINCE", "ACTIONS", "VARIANT", "PROFILE", "GOLDEN", "TARGET", "ACCEPTED", "SKIP", "BUDGET"} < given


def test_the_gate_of_the_action_passes_and_leaves_its_reports(tmp_path: Path) -> None:
    done = gate(tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "output").read_text() == "exit-code=0\n"
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"junit.xml", "kvproof.sarif", "run.ndjson", "gate.md"}
    assert (tmp_path / "summary.md").read_text().startswith("## kvproof gate: passed")


def test_the_gate_of_the_action_is_red_with_the_gate(tmp_path: Path) -> None:
    (golden := tmp_path / "a folder; exit 0").mkdir()
    shutil.copy(SHIPPED / "reference-retract-F22862b.jsonl.gz", golden)
    done = gate(tmp_path, GOLDEN=f"\n{golden}\n")
    assert done.returncode == 1, done.stderr
    assert (tmp_path / "output").read_text() == "exit-code=1\n"
    assert (tmp_path / "out" / "kvproof.sarif").exists()


def test_an_input_is_never_executed(tmp_path: Path) -> None:
    done = gate(tmp_path, SINCE='$(touch was-here)"; touch was-here; "', SKIP=f"{QUICK}\ngolden")
    assert done.returncode == 2
    assert not (tmp_path / "was-here").exists()


OURS, STRANGE = {"REPOSITORY": "us/server"}, {"REPOSITORY": "us/server", "HEAD_REPOSITORY": "them/server"}
OF_OUR_BRANCH = {**OURS, "HEAD_REPOSITORY": "us/server"}


@pytest.mark.parametrize(
    ("event", "of", "trust", "is_executed"),
    [
        ("pull_request", STRANGE, "true", False),
        ("pull_request_target", STRANGE, "true", False),
        ("pull_request", {**OURS, "HEAD_REPOSITORY": ""}, "true", False),  # the fork was deleted since
        ("workflow_run", STRANGE, "true", False),
        ("issue_comment", OURS, "true", False),
        ("", {}, "true", False),
        ("push", OURS, "false", False),
        ("pull_request", OF_OUR_BRANCH, "false", False),
        ("push", OURS, "true", True),
        ("pull_request", OF_OUR_BRANCH, "true", True),
        ("schedule", OURS, "true", True),
    ],
)
def test_a_variant_is_executed_only_if_it_is_our_own_and_that_is_asked_for(
    tmp_path: Path, event: str, of: dict[str, str], trust: str, is_executed: bool
) -> None:
    (tmp_path / "rule.py").write_text("open('was-here', 'w')\n")
    done = gate(tmp_path, VARIANT="rule.py", TRUST_VARIANTS=trust, EVENT=event, **of)
    assert is_executed or done.returncode == 2
    assert (tmp_path / "was-here").exists() == is_executed


def test_whose_code_it_is_comes_from_the_event() -> None:
    """A repository that is a fork itself gates its own pull requests; what counts is where this one comes from."""
    asked = step("gate")["env"]
    assert asked["EVENT"] == "${{ github.event_name }}" and asked["REPOSITORY"] == "${{ github.repository }}"
    assert "pull_request.head.repo.full_name" in asked["HEAD_REPOSITORY"]
    assert "workflow_run.head_repository.full_name" in asked["HEAD_REPOSITORY"]


def test_it_installs_the_revision_of_the_action(tmp_path: Path) -> None:
    (fake := tmp_path / "python").write_text('#!/bin/sh\nfor a in "$@"; do echo "<$a>"; done\n')
    fake.chmod(0o755)
    done = run_step(
        "install kvproof", tmp_path, PYTHON=str(fake), EXTRAS="fuzz", PIP_ARGUMENTS="--no-deps\n\n--quiet\n"
    )
    said = done.stdout.split()
    assert " ".join(said) == f"<-m> <pip> <install> <--disable-pip-version-check> <--no-deps> <--quiet> <{ROOT}[fuzz]>"
    assert run_step("install kvproof", tmp_path, PYTHON=str(fake)).stdout.split()[-1] == f"<{ROOT}>"


def hooked(folder: Path, trace: str) -> subprocess.CompletedProcess[str]:
    """A repository with one trace, checked by the hooks as they are defined, by the kvproof of this environment."""
    hooks = yaml.safe_load(HOOKS.read_text(encoding="utf-8"))
    for hook in hooks:
        program, _, command = hook["entry"].partition(" ")
        hook["entry"] = f"{Path(sys.executable).with_name(program)} {command}"
        hook["language"] = "system"
    (folder / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [{"repo": "local", "hooks": hooks}]}))
    shutil.copy(SHIPPED / trace, folder / "run.trace.jsonl.gz")
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    environment = {**os.environ, "PRE_COMMIT_HOME": str(folder.parent / "pre-commit")}
    command = [sys.executable, "-m", "pre_commit", "run", "--all-files", "kvproof-replay"]
    return completed(command, cwd=folder, env=environment)


@pytest.mark.parametrize(
    ("trace", "code"), [("sglang-0.5.23-abort-first.jsonl.gz", 0), ("reference-retract-F22862b.jsonl.gz", 1)]
)
def test_the_hook_runs_on_a_trace_that_is_committed(tmp_path: Path, trace: str, code: int) -> None:
    (folder := tmp_path / "repository").mkdir()
    done = hooked(folder, trace)
    assert done.returncode == code, done.stdout + done.stderr
    assert "kvproof replay" in done.stdout


def documented() -> list[dict[str, Any]]:
    """The workflows of docs/gate.md."""
    blocks = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8").split("```yaml\n")[1:]
    found = [yaml.safe_load(block.split("```")[0]) for block in blocks]
    return [block for block in found if isinstance(block, dict) and "jobs" in block]


def test_the_documented_workflows_are_workflows_and_use_inputs_that_there_are(tmp_path: Path) -> None:
    workflows = documented()
    assert len(workflows) == 2
    for workflow in workflows:
        (written := tmp_path / "workflow.yml").write_text(yaml.safe_dump(workflow).replace("true:", "on:", 1))
        schema = ("--builtin-schema", "vendor.github-workflows")
        assert completed([sys.executable, "-m", "check_jsonschema", *schema, written]).returncode == 0
        (use,) = [s for s in workflow["jobs"]["gate"]["steps"] if s.get("uses", "").startswith("OWNER/kvproof@")]
        assert use["with"].keys() <= action()["inputs"].keys()
        assert workflow["permissions"] == {"contents": "read"}
        assert "pull_request_target" not in workflow[True]
