import ctypes
import os
import re
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path

import pytest
from command_line import completed, of_its_own, require_exit, run
from typer.testing import CliRunner

from kvproof.conformance.cli import cli
from kvproof.conformance.errors import UserError
from kvproof.conformance.exit_codes import MEANING

COLOURING = ("NO_COLOR", "FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE", "CLICOLOR_FORCE")


def test_version_names_every_part_and_what_a_missing_one_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    result = require_exit(0, "--version")
    named = [line.rsplit(" ", 1)[0] for line in result.stdout.splitlines()]
    assert named == ["kvproof", "spec", "trace format", "z3", "cvc5", "python"]

    def version(package: str) -> str:
        if package == "cvc5":
            raise metadata.PackageNotFoundError(package)
        return "1"

    monkeypatch.setattr(metadata, "version", version)
    assert "cvc5 not installed: --certify needs it: pip install 'kvproof[certify]'" in run("--version").stdout


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    result = require_exit(0, command, "--help")
    for part in (f"kvproof {command}", "Example:", "--quiet", "--verbose"):
        assert part in result.stdout


@pytest.mark.parametrize("command", [(), *((name,) for name in cli.COMMANDS)], ids=str)
def test_help_names_values_and_shows_no_type_of_python(command: tuple[str, ...]) -> None:
    text = require_exit(0, *command, "--help").stdout
    assert not re.search(r"<[a-z]|list\[|INTEGER|BOOLEAN", text), text


def test_what_replays_a_trace_stands_beside_replay() -> None:
    """`drive` makes an implementation follow a trace."""
    assert cli.COMMANDS["drive"].group == cli.COMMANDS["replay"].group


def test_the_help_of_all_commands_says_of_each_what_it_says_of_itself() -> None:
    """The table of commands is read without importing one; so what it says must be theirs."""
    for name, entry in cli.COMMANDS.items():
        command = getattr(import_module(f"kvproof.conformance.cli.commands.{entry.module}"), entry.function)
        assert command.__doc__.startswith(entry.summary), name


def test_help_groups_the_commands_and_explains_the_exit_codes() -> None:
    text = run("--help").stdout
    for group in {entry.group for entry in cli.COMMANDS.values()}:
        assert f"─ {group} ─" in text
    for code, meaning in MEANING.items():
        assert f"{code.value} {meaning[:50]}" in text


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_neither_starting_up_nor_the_help_imports_what_is_heavy(arguments: list[str]) -> None:
    heavy = ("z3", "torch", "pydantic", "kvproof.model", "kvproof.impl", "kvproof.conformance.cli.commands")
    code = (
        f"import sys, kvproof.conformance.cli.cli as c\ntry: c.app({arguments})\nexcept SystemExit: pass\n"
        f"print([m for m in {heavy} if m in sys.modules], file=sys.stderr)"
    )
    assert completed([sys.executable, "-c", code]).stderr.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["prov"], "'prove'"),
        (["prove", "--falt", "F22862b"], "--fault"),
        (["prove", "--fault", "F22862"], "did you mean F22862b or F22862a?"),
        (["prove", "--profile", "sglang-0.5.22"], "sglang-0.5.23"),
        (["record", "--scenario", "retrakt", "--out", "t.jsonl"], "retract"),
        (["record", "--target", "referense", "--scenario", "retract", "--out", "t.jsonl"], "reference"),
        (["replay", "t.jsonl", "--checker", "compild"], "compiled"),
        (["replay", "t.jsonl", "--profile", "sglang-0.5.22"], "sglang-0.5.23"),
        (["drive", "t.jsonl", "--target", "referenc"], "reference"),
        (["convert", "a.jsonl", "b.jsonl", "--to", "colunmar"], "columnar"),
        (["list", "fauls"], "faults"),
        (["explain", "F22862"], "F22862b"),
        (["gate", "--skip", "prof"], "proof"),
        (["gate", "--action", "match_slat"], "match_slot"),
    ],
)
def test_a_mistyped_name_is_answered_with_the_one_that_was_meant(arguments: list[str], meant: str) -> None:
    result = require_exit(2, *arguments)
    assert meant in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("pro", "prove"),
        ("prove --fault F2286", "F22862a F22862b"),
        ("prove --profile ", "sglang-0.5.23"),
        ("replay --checker c", "compiled"),
        ("replay --profile a", "auto"),
        ("record --scenario retr", "retract"),
        ("record --target ref", "reference"),
        ("fuzz --target s", "sglang"),
        ("list fau", "faults"),
        ("explain F2286", "F22862a F22862b"),
        ("explain I1", "I1 I10 I19"),  # typer offers nothing that begins otherwise than what was typed
        ("gate --action match_", "match_slot match_tree"),
        ("replay --strict --ch", "--checker --checkpoint"),
    ],
)
def test_tab_completes_commands_options_and_names(typed: str, offered: str) -> None:
    done = CliRunner().invoke(cli.app, [], env=completing(typed), prog_name="kvproof")
    assert set(offered.split()) <= set(done.stdout.split()), done.output


def test_the_program_completes_as_well() -> None:
    environment = {**os.environ, **completing("pro")}
    assert completed(of_its_own(), env=environment).stdout.split() == ["prove"]


def completing(typed: str) -> dict[str, str]:
    """What bash tells a program of which Tab was hit behind these words."""
    words = {"COMP_WORDS": f"kvproof {typed}", "COMP_CWORD": str(len(typed.split(" ")))}
    return {"_KVPROOF_COMPLETE": "complete_bash", **words}


def test_colours_are_for_terminals_without_no_color() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in COLOURING}
    command = of_its_own("list", "nothing")
    assert "\x1b" not in completed(command, env=environment).stderr
    environment |= {"TERM": "xterm-256color"}
    assert "\x1b[1;31m" in on_a_terminal(command, environment)
    assert "\x1b[1;31m" not in on_a_terminal(command, {**environment, "NO_COLOR": "1"})


def test_verbose_says_what_it_took_and_where_an_error_came_from(trace: Path) -> None:
    spoken = run("info", "-v", trace)
    assert "took " in spoken.stderr and "MiB of memory at most" in spoken.stderr
    assert run("info", trace).stderr == ""
    assert spoken.stdout == run("info", trace).stdout
    trace.unlink()
    assert "Traceback" in run("info", "-v", trace).stderr
    assert "Traceback" not in run("info", trace).stderr


def test_no_command_is_never_a_pass() -> None:
    require_exit(2)


def on_a_terminal(command: list[str], environment: dict[str, str]) -> str:
    """What a command writes to a terminal that it has for its output and its errors."""
    ours, its = os.openpty()
    done = subprocess.run(command, stdout=its, stderr=its, env=environment, check=False)
    os.close(its)
    assert done.returncode == 2
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        return terminal.read(1 << 16).decode()


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UserError("no such thing"), 2, "error: no such thing\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        # So ctypes answers Ctrl-C where it comes while an argument of the solver is converted.
        (ctypes.ArgumentError("argument 3: KeyboardInterrupt: "), 130, "error: interrupted\n"),
        (AttributeError("oops"), 2, "this is a bug in kvproof, not in what it checked: AttributeError: oops"),
        (cli.typer.Exit(3), 3, ""),
    ],
)
def test_no_way_of_failing_looks_like_a_violation(error: BaseException, code: int, said: str) -> None:
    def command() -> None:
        raise error

    app = cli.typer.Typer()
    app.command()(cli._answering("test", command))
    result = CliRunner().invoke(app, [])
    assert result.exit_code == code
    assert said in result.stderr


def test_a_crash_before_a_command_begins_does_not_look_like_a_violation() -> None:
    code = (
        "import sys, kvproof.conformance.cli.cli as c\n"
        "def crash(): raise OSError('no terminal')\n"
        "c.app = crash\n"
        "from kvproof.conformance.cli.program import main\nmain()"
    )
    done = completed([sys.executable, "-c", code])
    assert done.returncode == 2 and "no terminal" in done.stderr


def test_a_reader_that_goes_away_gets_neither_a_traceback_nor_a_verdict() -> None:
    command = of_its_own("list", "actions")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 2
