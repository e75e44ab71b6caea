"""Runs of the model as traces, changes to them, and what each checker says of one: for the tests of the compiled one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from trace_events import read_records as read_records
from trace_events import write_records

from kvproof.conformance.compiled.checker import CompiledChecker
from kvproof.conformance.compiled.choose import Chosen
from kvproof.conformance.compiled.columns import batches
from kvproof.conformance.errors import UserError
from kvproof.conformance.replay.replay import Report, conclude, replay
from kvproof.conformance.replay.replayer import Replayer
from kvproof.conformance.traces.columnar_schema import PAGE_LISTS as LISTS
from kvproof.conformance.traces.columnar_schema import PAGE_LISTS_OR_NULL
from kvproof.conformance.traces.open_trace import read_trace
from kvproof.spec.profiles import Profile
from kvproof.spec.trace import Event

PAGE_LISTS = (*LISTS, *PAGE_LISTS_OR_NULL)


def answer(path: Path, checker: str, strict: bool = False, profile: str | None = None) -> Report | str:
    """The whole report, or the error for the user."""
    try:
        return replay(path, checker=Chosen(checker), strict=strict, profile=profile)
    except UserError as error:
        return error.message


def assert_same(path: Path, strict: bool = False, profile: str | None = None) -> Report | str:
    interpreted = answer(path, "interpreted", strict, profile)
    assert answer(path, "compiled", strict, profile) == interpreted
    return interpreted


Place = tuple[int | str, ...]


def places_of(records: list[dict[str, Any]]) -> Iterator[Place]:
    """Every number, flag, name and list of the events, as the way to it."""

    def look_into(value: Any, way: Place) -> Iterator[Place]:
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(inner, list) and inner:
                yield (*way, key)
            if isinstance(inner, (dict, list)):
                yield from look_into(inner, (*way, key))
            elif isinstance(inner, (int, str)) and key not in ("seq", "record", "action"):
                yield (*way, key)

    for number, record in enumerate(records[1:-1], 1):
        yield from look_into(record, (number,))


def changed_at(
    records: list[dict[str, Any]], place: Place, chance: random.Random, shorter: bool
) -> list[dict[str, Any]]:
    """The records with what stands there changed or gone; a list with one entry less, or more."""
    changed = [dict(record) for record in records]
    changed[place[0]] = within = json.loads(json.dumps(records[place[0]]))
    *way, key = place[1:]
    for step in way:
        within = within[step]
    value = within[key]
    if isinstance(value, list) and not shorter:
        value.insert(chance.randrange(len(value) + 1), chance.choice([*value, max(value) + 1]))
    elif isinstance(value, list):
        value.pop(chance.randrange(len(value)))
    elif isinstance(value, bool):
        within[key] = not value
    elif isinstance(value, str):
        within[key] = chance.choice(["session-1", "session-2", "turn-1", "another"])
    elif chance.random() < 0.2:
        del within[key]
    else:
        within[key] += chance.choice([-1, 1, 2, -5, 2**20, 2**33])
    return changed


def with_one_change(records: list[dict[str, Any]], chance: random.Random) -> list[dict[str, Any]]:
    return changed_at(records, chance.choice(list(places_of(records))), chance, chance.random() < 0.5)


def with_an_eviction(records: list[dict[str, Any]], chance: random.Random) -> list[dict[str, Any]]:
    """The records up to some event, then an eviction of a page, of a window page, or of both."""
    config, kept = records[0]["config"], records[: chance.randrange(2, len(records))]
    evicted = {"record": "event", "seq": len(kept) - 1, "action": "evict"}
    if chance.random() < 0.7:
        evicted["free"] = [chance.randint(1, config["pool_pages"])]
    if config.get("window_pages") and chance.random() < 0.7:
        evicted["window_free"] = [chance.randint(1, config["window_pages"])]
    return [*kept, evicted, {"record": "end", "events": len(kept)}]


def with_prefix_ids(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each event that shows pages of the tree tells the number of their prefix. In a run of the model no page leaves the tree."""
    for record in records:
        if record.get("shared"):
            record.setdefault("params", {})["prefix_id"] = 100 + record["shared"][-1]
    return records


def one_of_each_kind(records: list[dict[str, Any]], chance: random.Random) -> list[Place]:
    """For each event and each field of it (list entries are one field), one place where it stands."""
    kinds: dict[tuple[Any, ...], list[Place]] = {}
    for place in places_of(records):
        collapsed = tuple(step if isinstance(step, str) else "entry" for step in place[1:])
        kinds.setdefault((records[place[0]]["action"], *collapsed), []).append(place)
    return [chance.choice(places) for places in kinds.values()]


def check_each_kind_of_change(records: list[dict[str, Any]], path: Path, at_most: int) -> None:
    chance = random.Random(len(records))
    places = one_of_each_kind(records, chance)
    lists_first = sorted(places, key=lambda place: isinstance(place[-1], str) and place[-1] not in PAGE_LISTS)
    for place in lists_first[:at_most]:
        for shorter in (True, False):
            write_records(path, changed_at(records, place, chance, shorter))
            assert_same(path)


few = settings(max_examples=60, suppress_health_check=list(HealthCheck))


def stops_at(path: Path, judge: Callable[..., Any], profile: Profile | None = None) -> int | None:
    """The first event that the loop hands to the interpreted checker; None: it judges all by itself."""
    reader = read_trace(path)
    replayer = Replayer(reader, [], profile)
    handed_over: list[int] = []
    feed = replayer.feed

    def fed(line: int, event: Event) -> Any:
        handed_over.append(event.seq)
        return feed(line, event)

    replayer.feed = fed  # type: ignore[method-assign]
    CompiledChecker(replayer, judge).follow(batches(reader), lambda _: None)
    return handed_over[0] if handed_over else None


def answer_of(path: Path, judge: Callable[..., Any]) -> Report:
    """The report of a loop of one's own, with the verdict of `replay`."""
    reader = read_trace(path)
    replayer = Replayer(reader, [])
    checker = CompiledChecker(replayer, judge)
    checker.follow(batches(reader), lambda _: None)
    checker.bring_up_to_date()
    return conclude(replayer, reader)
