"""What is judged: a variant of a rule or an edit of a trace, with the reason why it is harmful and what must find it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Rule = Callable[..., Any]
Change = Callable[[Any], None]


@dataclass(frozen=True)
class Case:
    """One question to kvproof. `why`: who is harmed and how; of a harmless case, why it is right.

    `must`: what has to find a harmful one (an invariant, an expectation, a refusal, a verdict); empty: nothing may.
    """

    name: str
    topic: str
    why: str
    must: str

    @property
    def harmful(self) -> bool:
        return bool(self.must)


@dataclass(frozen=True)
class Variant(Case):
    """Rules by the name of the action that each replaces. `applies`: another condition, of a single rule."""

    rules: Mapping[str, Rule] = field(default_factory=dict)
    applies: Rule | None = None


@dataclass(frozen=True)
class Edit(Case):
    """A change of a right trace. `base`: the name of that trace; `profile`: whose rules it is judged by."""

    base: str = ""
    change: Change = lambda _: None


class Variants(dict[str, Variant]):
    """The variants of one topic, in the order in which they are written. The docstring of a rule is its reason."""

    def __init__(self, topic: str) -> None:
        super().__init__()
        self.topic = topic

    def wrong(
        self, action: str, must: str, *, applies: Rule | None = None, also: Mapping[str, Rule] | None = None
    ) -> Callable[[Rule], Rule]:
        """A decorator: the rule replaces `action`, and `must` be found by this."""

        def add(rule: Rule) -> Rule:
            name = rule.__name__
            self[name] = Variant(name, self.topic, reason_of(rule), must, {action: rule, **(also or {})}, applies)
            return rule

        return add

    def right(
        self, action: str, *, applies: Rule | None = None, also: Mapping[str, Rule] | None = None
    ) -> Callable[[Rule], Rule]:
        """A decorator: the rule replaces `action`, and must be proved."""
        return self.wrong(action, "", applies=applies, also=also)


class Edits(dict[str, Edit]):
    """The edits of one topic, in the order in which they are written. The docstring of a function is its reason."""

    def __init__(self, topic: str) -> None:
        super().__init__()
        self.topic = topic

    def wrong(self, base: str, must: str) -> Callable[[Change], Change]:
        """A decorator: the function changes a copy of the trace `base`, and `must` be found by this."""

        def add(change: Change) -> Change:
            name = change.__name__
            self[name] = Edit(name, self.topic, reason_of(change), must, base, change)
            return change

        return add

    def right(self, base: str) -> Callable[[Change], Change]:
        """A decorator: the function changes a copy of the trace `base`, which must still conform."""
        return self.wrong(base, "")


def reason_of(function: Callable[..., Any]) -> str:
    """The docstring on one line. Raises ValueError without one: a case without a reason proves nothing."""
    reason = " ".join((inspect.getdoc(function) or "").split())
    if not reason:
        raise ValueError(f"{function.__name__} has no docstring that says why")
    return reason
