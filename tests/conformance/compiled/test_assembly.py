"""Each operator of the rules means the same in machine code as in `model/tracing.py`, for any numbers."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("numba")
pytest.importorskip("pyarrow")

import numpy as np

from kvproof.conformance.compiled import build, layout
from kvproof.conformance.compiled.assembly import Assembly
from kvproof.conformance.compiled.rule_calls import call
from kvproof.model.compiled.assembly import PRELUDE
from kvproof.model.tracing import MEANING, Term, Tracing, evaluate

D = Tracing()
NUMBERS = [D.read(f"s.{name}") for name in list(layout.FIELDS)[:3]]
FLAGS = [D.operation("less", NUMBERS[0], NUMBERS[1]), D.operation("equal", NUMBERS[1], NUMBERS[2])]
OF_ONE_NUMBER = ("ceil_pages", "floor_pages", "tokens")
OF_FLAGS = {"and": FLAGS, "or": FLAGS, "not": FLAGS[:1]}


def term_of(operator: str) -> Term:
    if operator in OF_FLAGS:
        return D.operation(operator, *OF_FLAGS[operator])
    if operator == "where":
        return D.operation(operator, FLAGS[0], NUMBERS[1], FLAGS[1])
    return D.operation(operator, *NUMBERS[: 1 if operator in OF_ONE_NUMBER else 2])


@pytest.fixture(scope="module")
def functions() -> tuple[dict[str, int], object]:
    texts = []
    for operator in MEANING:
        written = Assembly()
        texts.append(written.function(f"of_{operator}", "i64", written.number(term_of(operator)), linkage=""))
    names = tuple(f"of_{operator}" for operator in MEANING)
    addresses, code = build.compiled_rules("\n".join([PRELUDE, *texts]), names)
    return dict(zip(MEANING, addresses.tolist(), strict=True)), code


@pytest.mark.parametrize("operator", MEANING)
def test_an_operator_means_what_it_means_in_the_model(operator: str, functions: tuple[dict[str, int], object]) -> None:
    chance, answers = random.Random(operator), set()
    for _ in range(200):
        page_size = chance.choice([1, 2, 3, 4, 7, 16])
        values = [chance.randrange(-9, 9) for _ in NUMBERS]
        ledger, settings = np.zeros(len(layout.FIELDS), np.int64), np.zeros(len(layout.SETTINGS), np.int64)
        ledger[: len(values)] = values
        settings[layout.SETTINGS_AT["page_size"]] = page_size
        shift = page_size.bit_length() - 1 if page_size & (page_size - 1) == 0 else -1
        settings[layout.SETTINGS_AT["page_shift"]] = shift
        arguments = (0, ledger.ctypes.data, 0, 0, 0, settings.ctypes.data, 0, 0, 0)
        read = {number.arguments[0]: value for number, value in zip(NUMBERS, values, strict=True)}
        expected = int(evaluate(term_of(operator), read, page_size))
        assert call(functions[0][operator], arguments) == expected, (page_size, values)
        answers.add(expected)
    assert len(answers) > 1
