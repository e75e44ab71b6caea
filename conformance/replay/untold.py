"""What a trace does not tell although the recorder of its target does, and although its header names no such gap."""

from __future__ import annotations

from collections.abc import Iterator

from kvproof.conformance.replay.coverage import Coverage
from kvproof.spec.actions import ACTIONS
from kvproof.spec.gaps import GAPS, WINDOW_PAGES, Unseen
from kvproof.spec.profiles import told_by
from kvproof.spec.recorded_values import WHERE_NO_TURN_IS_ON_THE_SLOT
from kvproof.spec.trace import Header

OF_A_WINDOW = "swa_evicted_seqlen"
MAX_NAMED = 4
"""Kinds of events that are named one by one."""


def leaves_out(gap: str, rule: str, value: str) -> bool:
    """Whether a recorder that says so does not see this value of the events that a rule judges."""
    unseen = GAPS.get(gap, Unseen())
    if value not in unseen.values or (unseen.is_on_the_slot and rule in WHERE_NO_TURN_IS_ON_THE_SLOT):
        return False
    return not unseen.events or ACTIONS[rule].event in unseen.events


def untold(coverage: Coverage, header: Header) -> Iterator[tuple[str, str, int]]:
    """Rule, value, and how often an event that it judged did not show the value."""
    expected = told_by(header.producer.target)
    for key, times in sorted(coverage.not_shown.items()):
        rule, _, value = key.partition(".")
        if value.endswith(OF_A_WINDOW) and not header.config.window:
            continue
        if value in expected.get(rule, ()) and not any(leaves_out(gap, rule, value) for gap in header.gaps):
            yield rule, value, times


def not_expected(header: Header) -> tuple[str, ...]:
    """What is not checked of a target whose recorder is not known, as a sentence."""
    target = header.producer.target
    if told_by(target):
        return ()
    windows = (WINDOW_PAGES,) if _has_no_window_pages(header) and WINDOW_PAGES not in header.gaps else ()
    return (*windows, f"whether values are missing: what the recorder of {target!r} tells is not known")


def why_untold(coverage: Coverage, header: Header) -> str:
    """What is missing, in a sentence; empty if nothing is."""
    missing: dict[str, dict[str, int]] = {}
    for rule, value, times in untold(coverage, header):
        of_event = missing.setdefault(ACTIONS[rule].event or rule, {})
        of_event[value] = of_event.get(value, 0) + times
    if not missing:
        return ""
    named = "; ".join(f"{event}: {_values(values)}" for event, values in list(missing.items())[:MAX_NAMED])
    more = f"; and {len(missing) - MAX_NAMED} more kinds of event" if len(missing) > MAX_NAMED else ""
    return (
        f"it tells less than the recorder of {header.producer.target} does: {named}{more}. "
        "What a recorder cannot see, the header names under gaps (docs/trace.md lists them)"
    )


def why_gaps_are_wrong(coverage: Coverage, header: Header) -> str:
    """What the header says of gaps and the trace contradicts, in a sentence; empty if nothing does.

    Some values are shown by each event of a rule, or by none. A gap does not excuse a trace that shows them in some.
    """
    config, expected = header.config, told_by(header.producer.target)
    if _has_no_window_pages(header) and WINDOW_PAGES not in header.gaps and expected:
        return f"the header says window {config.window} and window_pages 0, and names no gap {WINDOW_PAGES!r}"
    if config.window_pages and WINDOW_PAGES in header.gaps:
        return f"the header says window_pages {config.window_pages}, and names the gap {WINDOW_PAGES!r}"
    for gap in header.gaps:
        for key in sorted(coverage.shown.keys() & coverage.not_shown.keys()):
            rule, _, value = key.partition(".")
            is_of_each = value in expected.get(rule, ()) and not GAPS.get(gap, Unseen()).is_on_the_slot
            if is_of_each and leaves_out(gap, rule, value):
                some = f"{coverage.shown[key]} of {coverage.shown[key] + coverage.not_shown[key]} events"
                return f"the header names the gap {gap!r}, and {some} {ACTIONS[rule].event!r} show {value}"
    return ""


def _has_no_window_pages(header: Header) -> bool:
    return bool(header.config.window) and not header.config.window_pages


def _values(values: dict[str, int]) -> str:
    return ", ".join(f"{name} ({times} times)" for name, times in values.items())
