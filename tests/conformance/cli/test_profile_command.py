"""`kvproof prove --profile`: the rules of a release, by name."""

from __future__ import annotations

from command_line import run

from kvproof.spec.profiles import PROFILES


def test_the_command_line_names_the_profiles() -> None:
    listed = run("list", "profiles", "--quiet")
    assert listed.stdout.split() == list(PROFILES)
    unknown = run("prove", "--profile", "sglang-0.5")
    assert unknown.exit_code == 2 and f"valid: {', '.join(PROFILES)}" in unknown.stderr
    both = run("prove", "--profile", "sglang-0.5.23", "--fault", "F20070")
    assert both.exit_code == 2 and "choose one" in both.stderr


def test_a_refuted_profile_exits_with_1_and_shows_the_run() -> None:
    result = run("prove", "--profile", "sglang-0.5.23")
    assert result.exit_code == 1
    assert "REFUTED" in result.stdout and "6 retract()" in result.stdout
