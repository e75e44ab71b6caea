"""What a pass must have checked: `--require-coverage actions=retract,abort;invariants=I9;guards=insert;fields=lent`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kvproof.conformance.errors import UserError, unknown
from kvproof.conformance.replay.compared_fields import SHOWN
from kvproof.conformance.replay.coverage import COUNTED, WITHOUT_RULE, Coverage, all_branches
from kvproof.spec.actions import ACTIONS, Action

Tables = Iterable[Mapping[str, Action]]
KINDS = ("actions", "guards", "invariants", "fields")
_RULES_OF = {
    **{
        event: tuple(a.name for a in ACTIONS.values() if a.event == event)
        for event in {a.event for a in ACTIONS.values()}
    },
    **{event: (event,) for event in WITHOUT_RULE},
}
"""The actions that judge an event: whoever asks for `abort` asks for any of its rules."""


@dataclass(frozen=True)
class Required:
    """Names of actions (or of events, for any of their actions), of actions all whose branches count, of invariants, of values
    that events show."""

    actions: tuple[str, ...] = ()
    guards: tuple[str, ...] = ()
    invariants: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()

    @classmethod
    def parsed(cls, text: str, tables: Tables = (ACTIONS,)) -> Required:
        """Raises UserError where a kind or a name is not known. `tables`: the rules that may be judged by."""
        named: dict[str, tuple[str, ...]] = {}
        for part in filter(None, (part.strip() for part in text.split(";"))):
            kind, equals, names = part.partition("=")
            listed = tuple(filter(None, (name.strip() for name in names.split(","))))
            if not equals or not listed:
                raise UserError(
                    f"--require-coverage {part!r}: expected KIND=NAME,NAME, for example actions=retract,abort"
                )
            if kind not in KINDS:
                raise unknown("kind of coverage", kind, KINDS)
            for name in listed:
                if name not in _valid(kind, tables):
                    raise unknown(f"name among {kind}", name, _valid(kind, tables))
            named[kind] = (*named.get(kind, ()), *listed)
        if not named:
            raise UserError(f"--require-coverage {text!r}: names nothing; give {', '.join(f'{k}=NAME' for k in KINDS)}")
        return cls(**named)

    def missing_in(self, coverage: Coverage, tables: Tables = (ACTIONS,)) -> list[str]:
        """What was asked for and never happened, in words. `tables`: the rules that were judged by."""
        known = all_branches(tables)
        actions = (a for a in self.actions if not any(coverage.actions[rule] for rule in (a, *_RULES_OF.get(a, ()))))
        branches = (b for action in self.guards for b in known[action] or (action,) if not coverage.branches[b])
        invariants = (i for i in self.invariants if not coverage.invariants[i])
        shown = coverage.fields
        return [
            *(f"action {name}" for name in actions),
            *(f"branch {name!r}" for name in branches),
            *(f"invariant {name}" for name in invariants),
            *(f"field {name}" for name in self.fields if not shown[name]),
        ]


def _valid(kind: str, tables: Tables) -> Iterable[str]:
    if kind == "invariants":
        return list(COUNTED)
    if kind == "fields":
        return list(SHOWN)
    if kind == "guards":
        return [name for name, branches in all_branches(tables).items() if branches]
    return list(dict.fromkeys((*ACTIONS, *_RULES_OF)))
