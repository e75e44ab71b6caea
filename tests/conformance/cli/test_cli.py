import ctypes
import os
import subprocess
import sys
from dataclasses import dataclass, field
from importlib import import_module, metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import refusal, run
from typer.testing import CliRunner

from kvproof.conformance.adapters import scenarios
from kvproof.conformance.cli import cli
from kvproof.conformance.cli.commands import record as record_command
from kvproof.conformance.errors import UserError
from kvproof.conformance.exit_codes import MEANING
from kvproof.conformance.traces.trace_io import TraceWriter
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import every_invariant
from kvproof.spec.trace import Config, Header, Producer

PROGRAM = str(Path(sys.executable).with_name("kvproof"))
COLOURING = ("NO_COLOR", "FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE", "CLICOLOR_FORCE")
EXCERPT = Path(__file__).parents[3] / "examples" / "mooncake_conversation_excerpt.jsonl"
HEADER = Header(
    spec="1",
    producer=Producer(name="test", version="0", target="none"),
    config=Config(page_size=4, pool_pages=8, rows=2, row_width=32),
    gaps=("tree nodes",),
    known_deviations=("F994a",),
    extra={"engine": {"rows": 2, "faults": ["F994a"]}, "settings": {}},
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    with TraceWriter(tmp_path / "t.jsonl", HEADER) as writer:
        writer.event(action="open", session="s")
        writer.event(action="extend", session="s", turn="a", alloc=(1, 2), after={"kv_committed_len": 7})
        writer.event(action="finish", session="s", turn="a", free=(2,), after={"kv_committed_len": 3})
    return tmp_path / "t.jsonl"


# --- the program ----------------------------------------------------------------------------------------------------------


def test_version_names_every_part() -> None:
    result = run("--version")
    assert result.exit_code == 0
    named = [line.rsplit(" ", 1)[0] for line in result.stdout.splitlines()]
    assert named == ["kvproof", "spec", "trace format", "z3", "cvc5", "python"]


def test_a_solver_that_is_missing_is_said_with_what_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if package == "cvc5":
            raise metadata.PackageNotFoundError(package)
        return "1"

    monkeypatch.setattr(metadata, "version", version)
    assert "cvc5 not installed: --certify needs it: pip install 'kvproof[certify]'" in run("--version").stdout


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    for part in (f"kvproof {command}", "Example:", "--quiet", "--verbose"):
        assert part in result.stdout


def test_the_help_of_all_commands_says_of_each_what_it_says_of_itself() -> None:
    """The table of commands is read without importing one; so what it says must be theirs."""
    for name, entry in cli.COMMANDS.items():
        module, _, function = entry.where.partition(":")
        command = getattr(import_module(f"kvproof.conformance.cli.commands.{module}"), function)
        assert command.__doc__.startswith(entry.summary), name


def test_help_groups_the_commands_and_explains_the_exit_codes() -> None:
    text = run("--help").stdout
    for group in {entry.group for entry in cli.COMMANDS.values()}:
        assert f"─ {group} ─" in text
    for code, meaning in MEANING.items():
        assert f"{code.value} {meaning[:50]}" in text


def test_the_help_imports_no_command() -> None:
    code = (
        "import sys, kvproof.conformance.cli.cli as c\ntry: c.app(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in sys.modules if m.startswith('kvproof.conformance.cli.commands.')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"


def test_starting_up_imports_neither_z3_nor_torch_nor_the_schema() -> None:
    heavy = ("z3", "torch", "pydantic", "kvproof.model", "kvproof.impl")
    code = f"import sys, kvproof.conformance.cli.cli; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


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
    result = run(*arguments)
    assert result.exit_code == 2
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
    words = {"COMP_WORDS": f"kvproof {typed}", "COMP_CWORD": str(len(typed.split(" ")))}
    environment = {**os.environ, "_KVPROOF_COMPLETE": "complete_bash", **words}
    done = subprocess.run([PROGRAM], capture_output=True, text=True, env=environment, check=True)
    assert set(offered.split()) <= set(done.stdout.split()), done.stdout + done.stderr


def test_colours_are_for_terminals() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in COLOURING}
    command = [PROGRAM, "list", "nothing"]
    assert "\x1b" not in subprocess.run(command, capture_output=True, text=True, env=environment).stderr
    environment |= {"TERM": "xterm-256color"}
    assert "\x1b[1;31m" in on_a_terminal(command, environment)
    assert "\x1b[1;31m" not in on_a_terminal(command, {**environment, "NO_COLOR": "1"})


def test_verbose_says_what_it_took_and_quiet_runs_do_not(trace: Path) -> None:
    spoken = run("info", "-v", trace)
    assert "took " in spoken.stderr and "MiB of memory at most" in spoken.stderr
    assert run("info", trace).stderr == ""
    assert spoken.stdout == run("info", trace).stdout


def test_verbose_shows_where_an_error_came_from(tmp_path: Path) -> None:
    assert "Traceback" in run("info", "-v", tmp_path / "none.jsonl").stderr
    assert "Traceback" not in run("info", tmp_path / "none.jsonl").stderr


def test_no_command_is_never_a_pass() -> None:
    assert run().exit_code == 2


def test_no_color_is_respected() -> None:
    environment = {**os.environ, "NO_COLOR": "1", "FORCE_COLOR": "", "TERM": "xterm"}
    command = [sys.executable, "-m", "kvproof.conformance.cli.program", "list", "nothing"]
    stderr = subprocess.run(command, capture_output=True, text=True, env=environment).stderr
    assert stderr.startswith("error: unknown list 'nothing'") and "\x1b" not in stderr


def on_a_terminal(command: list[str], environment: dict[str, str]) -> str:
    """What a command writes to a terminal that it has for its output and its errors."""
    ours, its = os.openpty()
    done = subprocess.run(command, stdout=its, stderr=its, env=environment, check=False)
    os.close(its)
    assert done.returncode == 2
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        return terminal.read(1 << 16).decode()


def _raising(error: BaseException) -> Any:
    def command() -> None:
        raise error

    app = cli.typer.Typer()
    app.command()(cli._answering(command))
    return CliRunner().invoke(app, [])


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UserError("no such thing"), 2, "error: no such thing\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (AttributeError("oops"), 2, "this is a bug in kvproof, not in what it checked: AttributeError: oops"),
        (cli.typer.Exit(3), 3, ""),
    ],
)
def test_no_way_of_failing_looks_like_a_violation(error: BaseException, code: int, said: str) -> None:
    result = _raising(error)
    assert result.exit_code == code
    assert said in result.stderr


def test_ctrl_c_inside_a_call_of_the_solver_is_ctrl_c() -> None:
    """ctypes answers it with an error of its own where it comes while an argument is converted."""
    result = _raising(ctypes.ArgumentError("argument 3: KeyboardInterrupt: "))
    assert (result.exit_code, result.stderr) == (130, "error: interrupted\n")


def test_a_reader_that_goes_away_gets_neither_a_traceback_nor_a_verdict() -> None:
    command = [sys.executable, "-m", "kvproof.conformance.cli.program", "list", "actions"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 2


# --- list -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("what", "table"), [("faults", FAULTS), ("invariants", every_invariant())])
def test_list_has_a_line_for_each_row_of_the_table(what: str, table: dict[str, Any]) -> None:
    lines = run("list", what).stdout.splitlines()
    assert {line.split("\t")[0] for line in lines} == set(table)
    assert set(run("list", what, "-q").stdout.splitlines()) == set(table)


def test_list_of_something_else_names_what_can_be_listed() -> None:
    message = refusal("list", "fauls")
    assert (
        "unknown list 'fauls'; did you mean faults?; valid: faults, invariants, actions, profiles, scenarios" in message
    )


def test_a_target_that_is_not_installed_is_left_out_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    target = scenarios.Target(adapter="no_such_package", scenarios="no_such_package", install="pip install it")
    monkeypatch.setattr(scenarios, "TARGETS", {"other": target})
    monkeypatch.setattr("kvproof.conformance.cli.commands.list.TARGETS", {"other": target})
    result = run("list", "scenarios")
    assert result.exit_code == 0 and result.stdout == ""
    assert "note: scenarios of other left out: target other needs no_such_package" in result.stderr


# --- info -----------------------------------------------------------------------------------------------------------------


def test_info_of_a_complete_trace(trace: Path) -> None:
    result = run("info", trace)
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    for part in (
        "producer test 0, driving none",
        "page size 4 tokens",
        "pool 8 pages, 2 rows of 32 tokens",
        "cannot see tree nodes",
        "known deviations F994a",
        "engine rows=2, faults=F994a",
        "sessions 1 turns 1 events 3 open 1 extend 1 finish 1",
        "pages moved 2 taken, 1 freed, 0 shared",
        "kv_committed_len 3 to 7 tokens",
        "state complete (finished)",
    ):
        assert part in text


def test_info_of_a_trace_without_its_end_is_inconclusive(trace: Path) -> None:
    trace.write_text("".join(trace.read_text().splitlines(keepends=True)[:-1]))
    result = run("info", trace)
    assert result.exit_code == 3
    assert "incomplete: no end record;" in result.stdout


def test_info_names_the_torn_line(trace: Path) -> None:
    trace.write_bytes(trace.read_bytes()[:-20])
    result = run("info", "-q", trace)
    assert result.exit_code == 3
    assert result.stdout.startswith(f"{trace}: 3 events, page size 4, incomplete: no end record, line 5 is torn")


def test_info_of_a_trace_with_dropped_events_is_inconclusive(tmp_path: Path) -> None:
    writer = TraceWriter(tmp_path / "t.jsonl", HEADER)
    writer.close(dropped=5)
    result = run("info", tmp_path / "t.jsonl")
    assert result.exit_code == 3
    assert "the recorder dropped 5 events" in result.stdout


def test_one_incomplete_trace_among_several_decides_the_exit_code(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.jsonl").write_text(trace.read_text().splitlines(keepends=True)[0])
    result = run("info", "-q", tmp_path / "cut.jsonl", trace)
    assert result.exit_code == 3
    assert len(result.stdout.splitlines()) == 2


def test_info_refuses_what_is_no_trace(trace: Path, tmp_path: Path) -> None:
    assert "cannot read the trace" in refusal("info", tmp_path / "none.jsonl")
    assert "the header is missing" in refusal("info", EXCERPT)
    trace.write_text(trace.read_text().replace('"format":1', '"format":7'))
    assert "trace format 7; this kvproof reads format 1" in refusal("info", trace)


# --- record ---------------------------------------------------------------------------------------------------------------


@dataclass
class Adapter:
    """Stands for any adapter module: remembers what it was asked for."""

    SCENARIOS: dict[str, Any] = field(default_factory=lambda: {"retract": SimpleNamespace(summary="pool pressure")})
    reason: str = "finished"
    asked: dict[str, Any] = field(default_factory=dict)

    def record_scenario(self, what: Any, out: Path, **options: Any) -> SimpleNamespace:
        self.asked = {"what": what, **options}
        options["progress"](3)
        return SimpleNamespace(paths=(out,), events=3, reason=self.reason)

    record_workload = record_scenario


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch) -> Adapter:
    adapter = Adapter()
    for module in (scenarios, record_command):
        monkeypatch.setattr(module, "load", lambda target, module: adapter)
    return adapter


def test_record_hands_everything_to_the_adapter_and_says_how_to_check_it(adapter: Adapter) -> None:
    result = run(
        *("record", "--out", "a b.jsonl", "--scenario", "retract", "--page-size", 4, "--seed", 7),
        *("--fault", "F22862b", "--set", "rows=4", "--set", "overlap=true", "--set", "mode=fifo"),
        *("--device", "cuda"),
    )
    assert result.exit_code == 0, result.output
    asked = adapter.asked
    assert (asked["what"], asked["page_size"], asked["seed"], asked["faults"]) == ("retract", 4, 7, ("F22862b",))
    assert asked["settings"] == {"rows": 4, "overlap": True, "mode": "fifo", "device": "cuda"}
    assert result.stdout.splitlines() == [
        "recorded a b.jsonl: 3 events, page size 4, scenario retract",
        "  with F22862b turned on",
        "check it: kvproof replay 'a b.jsonl'",
    ]


def test_what_a_release_recorded_is_checked_by_its_own_rules(adapter: Adapter) -> None:
    result = run("record", "--target", "sglang", "--out", "t.jsonl", "--scenario", "retract")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "check it: kvproof replay t.jsonl --profile auto"


def test_record_of_a_workload_says_that_it_was_scaled(adapter: Adapter) -> None:
    result = run("record", "-o", "t.jsonl", "--workload", EXCERPT, "--scale", 32, "--limit", 10)
    assert result.exit_code == 0
    assert len(adapter.asked["what"]) == 10 and adapter.asked["what"][0].new_tokens == 64
    assert (
        "10 requests in 9 sessions of mooncake_conversation_excerpt.jsonl, token counts divided by 32" in result.stdout
    )


def test_record_says_when_the_run_ended_early(adapter: Adapter) -> None:
    adapter.reason = "the pool ran dry"
    assert "the run ended early: the pool ran dry" in run("record", "-o", "t.jsonl", "--scenario", "retract").stdout


def test_sglang_is_never_asked_for_a_fault(adapter: Adapter) -> None:
    assert run("record", "-o", "t.jsonl", "--target", "sglang", "--scenario", "retract").exit_code == 0
    assert "faults" not in adapter.asked


def test_quiet_record_prints_nothing(adapter: Adapter) -> None:
    assert run("record", "-q", "-o", "t.jsonl", "--scenario", "retract").output == ""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--scenario", "retrct"], "unknown scenario of reference 'retrct'; did you mean retract?; valid: retract"),
        (["--scenario", "retract", "--fault", "F22862"], "unknown fault 'F22862'; did you mean F22862"),
        (["--scenario", "retract", "--page-size", "0"], "page size 0: a page holds 1 token or more"),
        (["--scenario", "retract", "--target", "vllm"], "unknown target 'vllm'; valid: reference, sglang"),
        (["--scenario", "retract", "--scale", "2"], "--scale and --limit shape a workload"),
        (["--scenario", "retract", "--set", "rows"], "--set 'rows': expected KEY=VALUE"),
        (["--scenario", "retract", "--workload", str(EXCERPT)], "give either --scenario NAME"),
        ([], "give either --scenario NAME"),
        (["--workload", str(EXCERPT), "--scale", "0"], "scale 0"),
        (["--workload", str(EXCERPT), "--target", "sglang"], "--workload drives the reference only"),
        (["--scenario", "retract", "--target", "sglang", "--fault", "F22862b"], "--fault works on the reference only"),
        (["--scenario", "retract", "--target", "sglang", "--device", "cuda"], "--device is the reference's"),
        (["--workload", __file__], f"{__file__}:1: kvproof reads Mooncake JSONL"),
    ],
)
def test_record_refuses_in_one_line(adapter: Adapter, arguments: list[str], expected: str) -> None:
    assert expected in refusal("record", "-o", "t.jsonl", *arguments)
    assert adapter.asked == {}


# --- all of it, on the reference implementation ---------------------------------------------------------------------------


def test_a_recorded_scenario_is_the_same_each_time_and_conforms(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    for out in (one, two):
        assert run("record", "-o", out, "--scenario", "basic", "--page-size", 4, "--set", "forward=none").exit_code == 0
    assert one.read_bytes() == two.read_bytes()
    assert run("info", one).exit_code == 0
    assert run("replay", one).exit_code == 0


def test_a_recorded_production_workload_conforms(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "chat.jsonl.gz"
    assert run("record", "-o", out, "--workload", EXCERPT, "--scale", 32).exit_code == 0
    assert run("replay", out).exit_code == 0


def test_a_recorded_fault_is_a_violation_that_replay_names(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "broken.jsonl"
    fault = ("--scenario", "retract", "--page-size", 4, "--fault", "F22862b", "--set", "forward=none")
    assert run("record", "-o", out, *fault).exit_code == 0
    result = run("replay", out)
    assert result.exit_code == 1
    assert "F22862b" in result.stdout


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("row=1", "unknown setting of reference 'row'; did you mean rows?; valid: "),
        ("rows=0", "rows 0: must be 1 or more"),
        ("pool_pages=10000000000", "pool_pages 10000000000 of page_size 16 take "),
        ("device=meta", "unknown device 'meta'; valid: cpu, cuda, cuda:N"),
    ],
)
def test_a_setting_that_the_reference_does_not_take_is_refused(tmp_path: Path, settings: str, expected: str) -> None:
    pytest.importorskip("torch")
    assert expected in refusal("record", "-o", tmp_path / "t.jsonl", "--scenario", "basic", "--set", settings)
