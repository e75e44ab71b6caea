"""A run of the rules as events: the run says how many pages move, a witness says which.

The run is about one ledger (or a few side by side) and the environment is what it needs it to be. A trace has to show where
that came from, so the witness adds what the run takes for granted, by the right rules: an ordinary request that has filled the
tree before something of it is matched, a busy moment in which a turn was refused before it is answered outside its session, and
the ordinary request that a detached turn continues as.

Pages are handed out by `model/witness_pools.py`. Nothing here is shared with the replay
(`conformance/replay/page_book.py`): that the two agree on every run of the right rules is a test of both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kvproof.model.explore import Run, Taken
from kvproof.model.oracle import Oracle, Outcome, Value
from kvproof.model.witness_pools import Holder, Pools
from kvproof.spec.batch import LAUNCHES
from kvproof.spec.effects import Report
from kvproof.spec.state import FIELDS, NONE, WAITING, fill_len, pristine
from kvproof.spec.trace import Config, Event, Observed, Terms

NEW_STEP = frozenset({"match", "stash", "decode"})
WITH_ROW = frozenset({"extend", "stash", "insert", "decode"})
NOT_OF_THE_TURN = frozenset({"open", "create", "arrive", "close"})
LEAVES = frozenset({"finish", "abort", "retract"})
LATE_RESULTS = frozenset({"late_result", "result_of_ended"})
SEEN_ELSEWHERE = frozenset({"matched_len", "lingering", "allocated_len"})
"""Parameters of rules that no event carries: what they say is seen elsewhere in it."""
_SEEN = {
    group: [f.name for f in FIELDS if f.metadata["group"] == group and f.name in Observed.model_fields]
    for group in ("session", "slot", "turn")
}


@dataclass(frozen=True)
class Witness:
    """A complete trace of the model, all but its header's names."""

    config: Config
    events: tuple[Event, ...]


def witness_of(run: Run) -> Witness:
    """The trace of a counterexample."""
    return witness([("run", taken) for taken in run.steps], run.page_size, run.row_width, **run.config)


def witness(steps: Iterable[tuple[str, Taken]], page_size: int, row_width: int, **settings: Any) -> Witness:
    """The trace of steps of one or several ledgers, each step with the name of its ledger."""
    listed = list(steps)
    scribe = Scribe(Oracle.of(page_size, row_width, **settings), _refusals_wanted(listed))
    for key, taken in listed:
        scribe.write(key, taken)
    return scribe.finished()


def _refusals_wanted(steps: list[tuple[str, Taken]]) -> list[int]:
    """For each opening of a session, in order: how many turns that it refused will come back."""
    wanted: list[int] = []
    opening: dict[str, int] = {}
    for key, taken in steps:
        if taken.outcome.action.name == "open":
            opening[key] = len(wanted)
            wanted.append(0)
        elif taken.outcome.action.event == "match" and taken.outcome.action.of_another and taken.outcome.before.is_open:
            wanted[opening[key]] += 1
    return wanted


class Scribe:
    """Writes down steps as events: gives names, pages and rows, and adds what the steps take for granted."""

    def __init__(self, oracle: Oracle, refusals: list[int]) -> None:
        self._oracle = oracle
        self._d = oracle.d
        self._refusals = iter(refusals)
        self._pools = Pools(oracle.d)
        self._holders: dict[str, Holder] = {}
        self._ledgers: dict[str, Any] = {}
        self._names: Counter[str] = Counter()
        self._longest_prefill, self._has_chunks = 0, False
        self._events: list[tuple[dict[str, Any], dict[str, dict[str, int]] | None]] = []
        self._step = 0
        self._launched_in = -1

    def write(self, key: str, taken: Taken) -> None:
        """One step of one ledger, with what has to come before and after it."""
        outcome = taken.outcome
        holder = self._holders.setdefault(key, Holder())
        if _changes_nothing_late(outcome) and self._late_turn(holder, outcome) is None:
            return  # the result of no step that was launched: a rule allows it, no trace tells it
        self.fill_tree(int(taken.params.get("matched_len", 0)), holder.prefix)
        if taken.params.get("inserted", True):
            self.fill_tree(int(taken.params.get("dup_len", 0)), holder.pages[: holder.tree_end])
        self._step += outcome.action.event in NEW_STEP or self._is_launched_anew(outcome)
        if outcome.action.event in LAUNCHES:
            self._launched_in = self._step
        self._name(holder, outcome)
        self._ledgers[key] = outcome.after
        self._tell(key, holder, taken)
        if outcome.action.event in LEAVES and holder.turn is not None:
            holder.late += [holder.turn] * outcome.before.pending
        if outcome.after == pristine(self._d):
            self._holders[key] = Holder()
        if outcome.action.event == "open":
            self._refuse_turns(key, holder, next(self._refusals, 0))
        elif outcome.action.event == "match" and outcome.before.phase != NONE and outcome.after.phase == NONE:
            self._go_on_as_ordinary(holder, outcome.before.origin_len)

    def _is_launched_anew(self, outcome: Outcome) -> bool:
        """A prefill after another launch of the same step: in a run of the model each launch is a batch of its own."""
        return outcome.action.event == "extend" and self._launched_in == self._step

    def check(self, evictable: int = 0, protected: int = 0) -> None:
        """A memory check; its counters of the tree are off by so many pages."""
        self.act("memory check", "check", lingering=False)
        _, terms = self._events[-1]
        assert terms is not None
        terms["terms"]["evictable"] += evictable
        terms["terms"]["protected"] += protected

    def finished(self) -> Witness:
        # A request may fill a row; an implementation keeps a page beside it, and what its rounds may overshoot.
        rounds = 2 * (self._d.drafts + 1) if self._d.speculation else 0
        pool_pages = max(self._pools.full.highest, self._d.ceil_pages(self._d.row_width + rounds) + 1)
        config = Config(
            page_size=self._d.page_size,
            pool_pages=pool_pages,
            rows=max(1, self._pools.rows.highest),
            row_width=self._d.row_width,
            chunked_prefill_size=self._longest_prefill if self._has_chunks else None,
            overlap=self._d.overlap,
            speculation=self._d.speculation,  # type: ignore[arg-type]
            drafts=self._d.drafts,
            window=self._d.window,
            window_pages=pool_pages if self._d.windowed else 0,
            tree=self._d.tree,
        )
        events = []
        for seq, (fields, terms) in enumerate(self._events):
            if terms is not None:
                fields.update({name: _as_terms(counted, pool_pages) for name, counted in terms.items()})
            events.append(Event(seq=seq, **fields))
        return Witness(config, tuple(events))

    # -- names --

    def _name(self, holder: Holder, outcome: Outcome) -> None:
        match outcome.action.event:
            case "open":
                holder.session = self._new_name("session")
            case "create" if _is_admitted(outcome):
                holder.turn = self._new_name("turn")
            case "create":
                holder.refused.append(self._new_name("turn"))
            case "arrive" if holder.turn is None:
                holder.turn = self._new_name("request")
            case "result" if holder.turn is None:  # of one that ended before the run began
                holder.turn = self._new_name("ended")

    def _new_name(self, kind: str) -> str:
        self._names[kind] += 1
        return f"{kind}-{self._names[kind]}"

    # -- what a run takes for granted --

    def fill_tree(self, length: int, prefix: Sequence[int] = ()) -> None:
        """An ordinary request has left `length` tokens in the tree, whole pages, before anyone finds them there.

        `prefix`: the pages of the tree that they begin with, where these are not those of all requests.
        """
        pages, held = self._d.floor_pages(length), len(self._pools.path(prefix))
        if pages <= held:
            return
        end, key = self._d.tokens(pages), self._new_name("before")
        self._holders[key] = Holder(prefix=prefix)
        had = self._d.tokens(held)
        self.act(key, "arrive", origin_len=end)
        self.act(key, "match_tree", matched_len=had)
        self.act(key, "extend", seq_len=end, last=True)
        self.act(key, "result", tokens=1)
        self.act(key, "finish_plain", finished_len=1, dup_len=had, inserted=True)

    def _refuse_turns(self, key: str, holder: Holder, count: int) -> None:
        """While another turn was in flight, these were refused; that one was given up in the queue."""
        if count:
            self.act(key, "create", origin_len=1, too_long=False, logprob=False)
            for _ in range(count):
                self.act(key, "refuse")
            self.act(key, "abort_queued")

    def _go_on_as_ordinary(self, detached: Holder, origin_len: int) -> None:
        key = f"{detached.turn} detached"
        self._holders[key] = Holder(turn=detached.turn)
        self.act(key, "arrive", origin_len=origin_len)
        self._step -= 1  # its match is part of the step that detached it
        self.act(key, "match_tree", matched_len=0)

    def act(self, key: str, action: str, **params: Value) -> None:
        before, rule = self._ledgers.get(key, pristine(self._d)), self._oracle.actions[action]
        if "key_len" in rule.params:  # the tree takes all there is, unless it is said otherwise
            params = {"key_len": before.kv_committed_len, **params}
        outcome = self._oracle.step(rule, before, params)
        assert not outcome.failed_guards and not outcome.broken(self._d), (action, params, outcome)
        self.write(key, Taken(params, outcome))

    # -- events --

    def _tell(self, key: str, holder: Holder, taken: Taken) -> None:
        outcome, name = taken.outcome, taken.outcome.action.event
        row_before = holder.row
        moves = self._pools.move(holder, outcome)
        if name == "extend":
            self._longest_prefill = max(
                self._longest_prefill, outcome.after.kv_committed_len - outcome.before.prefix_len
            )
            self._has_chunks |= bool(outcome.after.kv_committed_len < fill_len(outcome.after))
        fields: dict[str, Any] = {"action": name, "step": self._step, "params": _params(taken)}
        if name != "check":
            fields.update(session=holder.session, turn=self._turn(holder, outcome), after=_observed(holder, outcome))
            fields.update(alloc=tuple(moves.alloc), free=tuple(moves.free))
            fields.update(window_alloc=tuple(moves.window_alloc), window_free=tuple(moves.window_free))
        if name in WITH_ROW or (name == "match" and outcome.after.lent):
            fields["row"] = holder.row
        elif name == "close" and outcome.before.slot_held:
            fields["row"] = row_before
        if name in ("extend", "insert") and moves.shared is not None:
            fields["shared"] = tuple(moves.shared)
        if name == "check":
            fields["params"] = {"busy": any(s.phase != NONE for s in self._ledgers.values())}
        self._events.append((fields, self._terms(key, outcome) if name == "check" else None))

    def _turn(self, holder: Holder, outcome: Outcome) -> str | None:
        match outcome.action.event:
            case "open" | "close":
                return None
            case "create" if not _is_admitted(outcome):
                return holder.refused[-1]
            case "result" if (late := self._late_turn(holder, outcome)) is not None:
                holder.late.remove(late)
                return late
            case _ if outcome.action.of_another and holder.session is None:
                return self._new_name("ended")
            case _ if outcome.action.of_another:
                return holder.refused.pop(0)
            case _:
                return holder.turn

    def _late_turn(self, holder: Holder, outcome: Outcome) -> str | None:
        """The turn whose result may come late by this rule; None if all are known."""
        if outcome.action.name not in LATE_RESULTS:
            return None
        phase = outcome.before.phase
        if not outcome.action.of_another:
            return holder.turn if phase == WAITING and holder.turn in holder.late else None
        # Of a turn that runs again a result is its own, whenever it was launched.
        own = holder.turn if phase != NONE else None
        return next((turn for turn in holder.late if turn != own), None)

    def _terms(self, key: str, outcome: Outcome) -> dict[str, dict[str, int]]:
        """The memory check over all ledgers: the one that the step is about by its own rule, the others by the right one."""
        check = self._oracle.actions["check"]
        effects = [*outcome.effects]
        for other, s in self._ledgers.items():
            if other != key:
                effects += self._oracle.step(check, s, {"lingering": False}).effects
        reports = [effect for effect in effects if isinstance(effect, Report)]
        pinned = {page for h in self._holders.values() for page in h.pages[: h.tree_end]}
        terms = {
            "terms": {
                "used": self._pools.full.highest - self._pools.full.free,
                "evictable": self._pools.tree_pages - len(pinned),
                "protected": len(pinned),
                "session_held": sum(r.session_held for r in reports),
                "uncached": sum(r.uncached for r in reports),
            }
        }
        if self._d.windowed:
            used = self._pools.windows.highest - self._pools.windows.free
            held, uncached = sum(r.window_held for r in reports), sum(r.window_uncached for r in reports)
            owned = {page for h in self._holders.values() for page in h.pages[h.tree_end :]}
            terms["window_terms"] = {
                "used": used,
                "evictable": sum(page not in owned | pinned for page in self._pools.window_of),
                "protected": sum(page in pinned for page in self._pools.window_of),
                "session_held": held,
                "uncached": uncached,
            }
        return terms


def _as_terms(counted: dict[str, int], pool_pages: int) -> Terms:
    counts = {name: count for name, count in counted.items() if name != "used"}
    return Terms(available=pool_pages - counted["used"], total=pool_pages, **counts)


def _changes_nothing_late(outcome: Outcome) -> bool:
    return outcome.action.name in LATE_RESULTS and outcome.after == outcome.before and not outcome.effects


def _is_admitted(outcome: Outcome) -> bool:
    return bool(outcome.after.turns > outcome.before.turns)


def _params(taken: Taken) -> dict[str, int | bool | None]:
    """What the event tells beside its values: the rule's parameters, and what of them the state implies."""
    outcome, before = taken.outcome, taken.outcome.before
    params: dict[str, int | bool | None] = {k: v for k, v in taken.params.items() if k not in SEEN_ELSEWHERE}
    match outcome.action.event:
        case "create":
            implied = {"origin_len": before.checkpoint_len + 1, "too_long": False, "logprob": False}
            return {**implied, **params, "admitted": _is_admitted(outcome)}
        case "match" if not outcome.action.of_another:
            known: Any = fill_len(before)
            return {**params, "fill_len": known}
        case "result":
            tokens = 1 if outcome.action.name in LATE_RESULTS else outcome.after.output_len - before.output_len
            return {"tokens": tokens, **params}
        case "finish":
            had = {} if params.get("inserted", True) else {"dup_len": 0}  # what is not inserted has no copies
            return {"finished_len": before.output_len, **params, **had}
        case _:
            return params


def _observed(holder: Holder, outcome: Outcome) -> Observed:
    """All that can be seen of the ledger. The turn of a create has nothing to show yet, a refused one never."""
    after, action = outcome.after, outcome.action
    names: list[str] = []
    if holder.session is not None:
        names += _SEEN["session"] + [n for n in _SEEN["slot"] if after.slot_held or n == "slot_held"]
    if after.phase != NONE and action.event not in NOT_OF_THE_TURN and not action.of_another:
        names += _SEEN["turn"]
    seen = {name: getattr(after, name) for name in names}
    if holder.session is not None and action.event in ("create", "match"):
        stays = bool(after.inflight or after.turns)
        seen["attached"] = _is_admitted(outcome) if action.event == "create" or action.of_another else stays
    return Observed(**seen)
