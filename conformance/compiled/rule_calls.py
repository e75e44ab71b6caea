"""How the loop asks the rules: by the address of a function, with the addresses of the arrays that the function reads."""

from __future__ import annotations

import ctypes

from kvproof.conformance.compiled.layout import EventArrays, StateArrays

OF_PYTHON = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 9)


def call(address: int, arguments: tuple[int, ...]) -> int:
    """A function of the rules, called by Python. In compiled code another function takes its place (`build.py`)."""
    return int(OF_PYTHON(address)(*map(int, arguments)))


def ask(state: StateArrays, function: int, number: int, ledger: int, events: EventArrays, event: int) -> int:
    """What a function of the rules says of a ledger and an event; `number` is what the function makes of it.

    The order of the arguments is that of `assembly.PARAMETERS`.
    """
    return call(
        int(state.functions[function]),
        (
            number,
            state.ledgers.ctypes.data + int(ledger) * state.ledgers.strides[0],
            state.new.ctypes.data,
            events.table.ctypes.data + event * events.table.strides[1],
            events.table.strides[0],
            state.settings.ctypes.data,
            state.counts.ctypes.data,
            state.answer.ctypes.data,
            state.moves.ctypes.data,
        ),
    )
