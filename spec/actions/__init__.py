"""The actions: every rule of the protocol, as guarded updates with effects. `ACTIONS` is the table that all tools walk."""

from kvproof.spec.actions.action import Action, Guard, Run, Step
from kvproof.spec.actions.decode import DECODE_ACTIONS
from kvproof.spec.actions.finish import FINISH_ACTIONS
from kvproof.spec.actions.memory_check import CHECK_ACTIONS
from kvproof.spec.actions.prefill import PREFILL_ACTIONS
from kvproof.spec.actions.session import SESSION_ACTIONS

ACTIONS: dict[str, Action] = SESSION_ACTIONS | PREFILL_ACTIONS | DECODE_ACTIONS | FINISH_ACTIONS | CHECK_ACTIONS

__all__ = ["ACTIONS", "Action", "Guard", "Run", "Step"]
