"""The actions: every rule of the protocol, as guarded updates with effects. `ACTIONS` is the table that all tools walk."""

from kvproof.spec.actions.action import Action, Guard, Step
from kvproof.spec.actions.prefill import PREFILL_ACTIONS
from kvproof.spec.actions.session import SESSION_ACTIONS
from kvproof.spec.actions.turn import TURN_ACTIONS

ACTIONS: dict[str, Action] = {a.name: a for a in (*SESSION_ACTIONS, *PREFILL_ACTIONS, *TURN_ACTIONS)}

__all__ = ["ACTIONS", "Action", "Guard", "Step"]
