"""The breadth-first search of a small instance as machine code: the same steps in the same order as `model/explore.py` takes.

The rules are printed (`model/compiled/steps.py`) with a loop over states and the hash table of those that were met. That is
compiled for each set of rules anew, for all instances at once, in a quarter of a second at most; nothing is kept on disk.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kvproof.model.compiled.assembly import PRELUDE
from kvproof.model.compiled.machine_code import loaded, object_code, target_machine
from kvproof.model.compiled.steps import (
    SLOTS,
    WORD,
    StateLayout,
    Steps,
    TracedStep,
    count_source,
    settings_of,
    step_source,
    weigh_source,
)
from kvproof.model.integers import Integers
from kvproof.model.small_instances import parameters
from kvproof.spec.actions import Action
from kvproof.spec.machine import Machine

Array = Any
"""A numpy array."""
FOUND, FULL, BEYOND_A_BYTE = 1, 2, 3
"""Why a search stopped: a step that was looked for, one state more than it may have, a number too large."""
CHUNK = 10_000
"""States whose steps are taken by one call: between two calls Ctrl-C is heard."""
MULTIPLIER = -7046029254386353131
"""Of the hash, which mixes in one word after the other."""


# --- the functions that know no rule --------------------------------------------------------------------------------


def arrive_source(layout: StateLayout) -> str:
    """`arrive`: a step leads to the state at `%new`. It is looked up, and added if it is new; a wanted step ends the search."""
    written = Steps(layout)
    written.unless(written.compare("eq", written.get("stop"), 0), "done")
    written.add(written.place("taken", "%action"), 1)
    written.choose(written.compare("eq", "%beyond", 0), "look_up", "beyond_a_byte")
    written.under("beyond_a_byte")
    written.set("stop", BEYOND_A_BYTE)
    written.go("done")

    written.under("look_up")
    words, mask, source = written.words_of("%new"), written.get("mask"), written.get("source")
    first = written.put(f"and i64 {_hash(written, words)}, {mask}")
    written.go("probe")
    written.under("probe")
    written.put(f"phi i64 [{first}, %look_up], [%following, %differs]", "%bucket")
    entry = written.place("table", "%bucket", "i32")
    one_more = written.put(f"zext i32 {written.load(entry, 'i32')} to i64")
    written.choose(written.compare("eq", one_more, 0), "is_new", "compare")
    written.under("compare")
    written.put(f"sub i64 {one_more}, 1", "%known")
    difference = "0"
    for one, other in zip(written.words_of(_row(written, "%known")), words, strict=True):
        difference = written.put(f"or i64 {difference}, {written.put(f'xor i64 {one}, {other}')}")
    written.choose(written.compare("eq", difference, 0), "is_known", "differs")
    written.under("differs")
    written.put(f"and i64 {written.put('add i64 %bucket, 1')}, {mask}", "%following")
    written.go("probe")

    written.under("is_known")
    written.load(written.place("broken", "%known"), name="%broken_in_known")
    written.go("judge")

    written.under("is_new")
    written.put("call i64 @weigh(ptr %new, ptr %new, ptr %settings, ptr %search)", "%broken_in_new")
    written.get("count", name="%count")
    written.choose(written.compare("eq", "%count", written.get("most")), "judge", "add")
    written.under("add")
    written.store_words(words, _row(written, "%count"))
    written.store("%broken_in_new", written.place("broken", "%count"))
    written.store(written.cut(source, "i32"), written.place("sources", "%count", "i32"), "i32")
    following = written.put("add i64 %count, 1")
    written.set("count", following)
    written.store(written.cut(following, "i32"), entry, "i32")
    written.go("judge")

    written.under("judge")
    written.put("phi i64 [%known, %is_known], [%count, %is_new], [%count, %add]", "%index")
    written.put("phi i64 [%broken_in_known, %is_known], [%broken_in_new, %is_new], [%broken_in_new, %add]", "%after")
    edges = written.get("edge_count")
    written.store(written.cut("%index", "i32"), written.place("edges", edges, "i32"), "i32")
    written.set("edge_count", written.put(f"add i64 {edges}, 1"))
    # What did not hold before the step is not broken by it.
    held = written.put(f"xor i64 {written.load(written.place('broken', source))}, -1")
    broken = written.put(f"or i64 %failed, {written.put(f'and i64 %after, {held}')}")
    wanted = written.put(f"and i64 {broken}, {written.get('wanted')}")
    written.choose(written.compare("eq", wanted, 0), "is_unwanted", "is_wanted")
    written.under("is_wanted")
    written.set("stop", FOUND)
    written.go("done")
    written.under("is_unwanted")
    written.choose(written.compare("eq", "%index", written.get("most")), "is_full", "done")
    written.under("is_full")
    written.set("stop", FULL)
    written.go("done")
    written.under("done")
    written.do("ret void")
    return written.function("arrive", ", i64 %action, i64 %failed, i64 %beyond", linkage="")


def _hash(written: Steps, words: Iterable[str]) -> str:
    mixed = "0"
    for word in words:
        product = written.put(f"mul i64 {written.put(f'xor i64 {mixed}, {word}')}, {MULTIPLIER}")
        mixed = written.put(f"xor i64 {product}, {written.put(f'lshr i64 {product}, 29')}")
    return mixed


def _row(written: Steps, index: str) -> str:
    return written.place("states", written.put(f"mul i64 {index}, {written.layout.words}"))


def each_state_source(layout: StateLayout, called: Iterable[str]) -> str:
    """`each_state`: calls these functions for the states from `%begin` to before `%end`, until the search stops."""
    written = Steps(layout)
    new = written.put(f"alloca [{layout.words} x i64]")
    written.go("next_state")
    written.under("next_state")
    written.put("phi i64 [%begin, %entry], [%following, %state]", "%index")
    written.unless(written.compare("ult", "%index", "%end"), "done")
    written.choose(written.compare("eq", written.get("stop"), 0), "state", "done")
    written.under("state")
    written.set("source", "%index")
    row = _row(written, "%index")
    for name in called:
        written.do(f"call void @{name}(ptr {row}, ptr {new}, ptr %settings, ptr %search)")
    written.store(written.get("edge_count"), written.place("ends", written.put("sub i64 %index, %begin")))
    written.put("add i64 %index, 1", "%following")
    written.go("next_state")
    written.under("done")
    written.do("ret void")
    return written.function("each_state", ", i64 %begin, i64 %end", linkage="")


# --- the search -----------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=32)
def _compiled(level: int, *sources: str) -> Any:
    machine = target_machine(level)
    return loaded(object_code("\n".join([PRELUDE, *sources]), machine, 0), machine)


def compile_anew() -> None:
    """Forget what was compiled in this process: to measure how long that takes."""
    _compiled.cache_clear()


@dataclass
class Reached:
    """What a search reached. `sources`: the state that each was reached from first.

    `edges`, for each chunk of states: those that have steps, where the steps of each begin, and what all of these lead to.
    `stop`: FOUND, FULL, BEYOND_A_BYTE, or 0 after all states; `stopped_at`: the state whose steps were taken then.
    """

    layout: StateLayout
    states: Array
    sources: Array
    taken: dict[str, int]
    depth: int
    edges: list[tuple[Array, Array, Array]]
    stop: int
    stopped_at: int

    def column(self, name: str) -> Array:
        """One field of all states."""
        return self.states[:, self.layout.places[name]]

    def path(self) -> list[Any]:
        """The states from the start to the one that it stopped at."""
        path = [self.stopped_at]
        while path[-1]:
            path.append(int(self.sources[path[-1]]))
        return [self.layout.state_of(self.states[index].tolist()) for index in reversed(path)]

    def from_which_some_run_reaches(self, ends: Array) -> Array:
        """For each state the bits of `ends` (uint8, one for each state) that some state has which a run leads to from it."""
        import numpy as np

        all_bits, has_changed = np.bitwise_or.reduce(ends), True
        while has_changed:
            has_changed = False
            for sources, begins, targets in reversed(self.edges):
                before = ends[sources]
                if (before == all_bits).all():
                    continue
                after = before | np.bitwise_or.reduceat(ends[targets], begins)
                has_changed |= bool((after != before).any())
                ends[sources] = after
        return ends


class _Memory:
    """What compiled functions read and write: the configuration, and the slots of a search by name."""

    def __init__(self, d: Integers, arrays: Mapping[str, Array], **numbers: int) -> None:
        import numpy as np

        self._arrays = arrays
        self._settings = np.array(settings_of(d), np.int64)
        addresses = {name: array.ctypes.data for name, array in arrays.items()}
        self._slots = np.array([{**addresses, **numbers}.get(name, 0) for name in SLOTS], np.int64)

    def __getitem__(self, slot: str) -> int:
        return int(self._slots[SLOTS.index(slot)])

    def __setitem__(self, slot: str, number: int) -> None:
        self._slots[SLOTS.index(slot)] = number

    def call(self, engine: Any, name: str, *numbers: int, state: int = 0) -> None:
        """Call a function with the address of a state and further numbers."""
        arguments = (state, state, self._settings.ctypes.data, self._slots.ctypes.data, *numbers)
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(arguments))
        kind(engine.get_function_address(name))(*arguments)


class CompiledRules:
    """The rules of a machine, ready to search any small instance."""

    def __init__(self, machine: Machine, actions: Mapping[str, Action]) -> None:
        self.machine, self.actions, self.layout = machine, actions, StateLayout(machine.state)
        steps = [TracedStep.of(action, machine.state) for action in actions.values()]
        named = dict.fromkeys([*machine.invariants, *(invariant for step in steps for invariant in step.failed)])
        self._bits = {invariant: bit for bit, invariant in enumerate(named)}
        assert len(self._bits) < 64
        self._sources = (
            weigh_source(machine.invariants, self.layout, self._bits),
            arrive_source(self.layout),
            *(step_source(step, number, self.layout, self._bits) for number, step in enumerate(steps)),
            each_state_source(self.layout, [f"take_{name}" for name in actions]),
        )

    def search(
        self,
        d: Integers,
        most: int,
        depth: int | None = None,
        wanted: Collection[str] | None = (),
        keep_edges: bool = False,
    ) -> Reached:
        """All states within `depth` steps of the start (None: all), at most `most`.

        It ends at a step that breaks one of the `wanted` invariants (None: any).
        """
        import numpy as np

        tries = sum(1 for action in self.actions.values() for _ in parameters(action, d.row_width))
        table_size = 1 << (2 * most).bit_length()
        # Memory is taken page by page as it is written: states that may be there and are not cost nothing.
        arrays: dict[str, Array] = {
            "states": np.empty((most, self.layout.words * WORD), np.int8),
            "broken": np.empty(most, np.int64),
            "sources": np.empty(most, np.int32),
            "table": np.zeros(table_size, np.int32),
            "edges": np.empty(CHUNK * tries, np.int32),
            "ends": np.empty(CHUNK, np.int64),
            "taken": np.zeros(len(self.actions) + 1, np.int64),
        }
        # All states of an instance pay for better code, which takes a tenth of a second more; a shortest run does not.
        engine = _compiled(int(keep_edges), *self._sources)
        memory = _Memory(d, arrays, most=most, mask=table_size - 1)
        start = np.frombuffer(self.layout.row_of(self.machine.start(d)), np.int8)
        memory.call(engine, "arrive", len(self.actions), 0, 0, state=start.ctypes.data)
        bits = self._bits.values() if wanted is None else [self._bits[name] for name in wanted if name in self._bits]
        memory["wanted"] = sum(1 << bit for bit in bits)
        edges, begin, levels = [], 0, 0
        while begin < (end := memory["count"]) and not memory["stop"] and levels != depth:
            for first, last in _chunks(begin, end):
                memory["edge_count"] = 0
                memory.call(engine, "each_state", first, last)
                if memory["stop"]:
                    break
                if keep_edges:
                    upto, targets = arrays["ends"][: last - first], arrays["edges"][: memory["edge_count"]]
                    steps = np.diff(upto, prepend=0)
                    (with_steps,) = np.nonzero(steps)
                    edges.append((first + with_steps, (upto - steps)[with_steps], targets.copy()))
            begin, levels = end, levels + 1
        return Reached(
            self.layout,
            arrays["states"][: memory["count"]],
            arrays["sources"][: memory["count"]],
            dict(zip(self.actions, arrays["taken"].tolist(), strict=False)),
            levels - 1,
            edges,
            memory["stop"],
            memory["source"],
        )


def counts_of(reached: Reached, d: Integers, situations: Iterable[Callable[..., Any]]) -> list[int]:
    """In how many of the states that were reached each situation is met."""
    import numpy as np

    engine = _compiled(
        0, count_source(asked := list(situations), reached.layout), each_state_source(reached.layout, ["count"])
    )
    counts = np.zeros(len(asked), np.int64)
    memory = _Memory(d, {"states": reached.states, "taken": counts, "ends": np.empty(CHUNK, np.int64)})
    for first, last in _chunks(0, len(reached.states)):
        memory.call(engine, "each_state", first, last)
    return counts.tolist()


def _chunks(begin: int, end: int) -> Iterator[tuple[int, int]]:
    return ((first, min(end, first + CHUNK)) for first in range(begin, end, CHUNK))
