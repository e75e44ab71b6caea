"""The paths of a run are those that a solver finds which is asked for each path anew."""

from __future__ import annotations

import itertools

import pytest
import z3

from kvproof.model.code.paths import Paths
from kvproof.model.questions import checked, z3_solver

X, Y, Z = z3.Ints("x y z")
ASSUMED = [X >= 0, Y >= 0, z3.Or(Z == X, Z == Y)]
FLAGS = {
    "order": [X < Y, Y < Z, Z < X, X == Y, Y < X],
    "an exclusion that needs a branch of one side": [X > 3, Y > 5, Z > 4, Z < 2, X + Y < 3],
    "the same flag again": [X < Y, z3.Not(X < Y), X < Y, Z == Y],
}


def taken_by(flags: list[z3.BoolRef], paths: Paths) -> list[tuple[bool, ...]]:
    return [answers for _, answers in paths.all(lambda: tuple(paths.decide(flag) for flag in flags))]


def is_possible(conditions: list[z3.BoolRef]) -> bool:
    solver = z3_solver()
    solver.add(*ASSUMED, *conditions)
    return checked(solver) == "sat"


def conditions_of(flags: list[z3.BoolRef], answers: tuple[bool, ...]) -> list[z3.BoolRef]:
    return [flag if answer else z3.Not(flag) for flag, answer in zip(flags, answers, strict=True)]


@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
def test_the_paths_are_all_that_are_possible(flags: list[z3.BoolRef]) -> None:
    for order in itertools.permutations(flags):
        asked = list(order)
        every = itertools.product([True, False], repeat=len(asked))
        possible = {answers for answers in every if is_possible(conditions_of(asked, answers))}
        found = taken_by(asked, Paths(ASSUMED))
        assert len(found) == len(set(found))
        assert set(found) == possible


def test_what_must_hold_on_one_path_need_not_on_another() -> None:
    paths = Paths(ASSUMED)

    def run() -> tuple[bool, bool]:
        return paths.decide(X > Y), paths.must(X > 0)

    assert sorted(answers for _, answers in paths.all(run)) == [(False, False), (True, True)]


def test_an_answer_serves_the_other_paths() -> None:
    paths = Paths([])
    flags = [X > 0, Y > 0, Z > 1, Z > 0]
    assert len(taken_by(flags, paths)) == 2 * 2 * 3
    assert paths.questions == 1 + 11 + 1, (
        "a first state, one for each other path, and that Z > 1 and Z <= 0 exclude each other"
    )
