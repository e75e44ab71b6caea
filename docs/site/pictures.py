"""Drawings of states of the specification, as SVG that stands in a page: no script, no font, no file beside it.

A ledger is drawn as its row: the pages behind it by owner, the tokens whose KV is valid, the lengths as marks below. States of
the small machines have no row; they are drawn as their fields.
"""

from __future__ import annotations

import dataclasses
from html import escape
from typing import Any

from kvproof.conformance.replay.ledger_words import value
from kvproof.model.integers import Integers
from kvproof.spec.state import PHASE_NAMES, PREFILL, RUNNING, WAITING, Ledger

TOKEN, PAGE_HEIGHT, LEFT, LINE, FIELD_WIDTH = 58, 34, 110, 17, 300
OWNERS = {"tree": "#2e7d32", "turn": "#ef6c00", "slot": "#1565c0", "nobody": "#c62828"}
LENGTHS = {
    "cache_protected_len": "R",
    "swa_evicted_seqlen": "E",
    "kv_committed_len": "C",
    "kv_allocated_len": "A",
}


def drawing(title: str, states: dict[str, Any], d: Integers) -> str:
    """States one below the other, each under its name."""
    draw = _rows if all(isinstance(s, Ledger) for s in states.values()) else _fields
    body, width, height = draw(states, d)
    size = f'viewBox="0 0 {width} {height}" width="{width}" xmlns="http://www.w3.org/2000/svg"'
    svg = f'<svg class="row-picture" role="img" {size}><title>{escape(title)}</title>{"".join(body)}</svg>'
    return f'<div class="scrolls" data-search-exclude>{svg}</div>'


def _rows(states: dict[str, Any], d: Integers) -> tuple[list[str], int, int]:
    pages = max([d.ceil_pages(d.row_width), *(max(s.row_end, s.tree_end) for s in states.values())])
    orphans = max(s.orphans for s in states.values())
    parts: list[str] = []
    top = 4
    for name, s in states.items():
        parts.append(_text(0, top + PAGE_HEIGHT / 2 + 5, name, weight="bold"))
        for page in range(pages):
            parts += _page(LEFT + page * d.page_size * TOKEN, top, d.page_size, *_owner(s, page))
        for orphan in range(s.orphans):
            left = LEFT + pages * d.page_size * TOKEN + 20 + orphan * (d.page_size * TOKEN + 6)
            parts += _page(left, top, d.page_size, "nobody's", OWNERS["nobody"])
        valid = LEFT + s.kv_valid * TOKEN
        parts.append(
            f'<line x1="{LEFT}" x2="{valid}" y1="{top + PAGE_HEIGHT - 4}" y2="{top + PAGE_HEIGHT - 4}" '
            'stroke="currentColor" stroke-width="4"/>'
        )
        top += PAGE_HEIGHT + LINE
        for whose, marks in _marks(s).items():
            parts.append(_text(0, top, whose, size=12))
            for at, letters in marks.items():
                x = LEFT + at * TOKEN
                parts.append(
                    f'<line x1="{x}" x2="{x}" y1="{top - LINE + 1}" y2="{top - 11}" stroke="currentColor" stroke-width="2"/>'
                )
                parts.append(_text(x, top, f"{' '.join(letters)} = {at}", size=12, anchor="middle"))
            top += LINE + 3
        parts.append(_text(LEFT, top, _protocol(s), size=11))
        top += LINE + 6
    parts.append(_text(LEFT, top + 6, "the bar: tokens whose KV is valid; marks: after so many tokens", size=11))
    width = LEFT + pages * d.page_size * TOKEN + 40 + orphans * (d.page_size * TOKEN + 6)
    return parts, max(width, 480), top + 12


def _page(left: float, top: float, tokens: int, label: str, colour: str | None) -> list[str]:
    paint = f'fill="{colour}" fill-opacity=".28" stroke="{colour}"' if colour else 'fill="none" stroke-dasharray="4 3"'
    stroke = "" if colour else ' stroke="currentColor" stroke-opacity=".5"'
    wide = tokens * TOKEN - 3
    box = f'<rect x="{left + 1.5}" y="{top}" width="{wide}" height="{PAGE_HEIGHT}" rx="3" {paint}{stroke}/>'
    return [box, _text(left + tokens * TOKEN / 2, top + 17, label, size=12, anchor="middle")]


def _owner(s: Ledger, page: int) -> tuple[str, str | None]:
    """Who has a page of the row, by the ghosts, which count what really happened."""
    if page < s.tree_end:
        return "tree", OWNERS["tree"]
    if page < s.row_end:
        whose = "turn" if s.phase in (PREFILL, RUNNING) else "slot"
        return whose, OWNERS[whose]
    return "", None


def _protocol(s: Ledger) -> str:
    """Session and turn in a few words."""
    session = "an ordinary request" if s.plain else "session open" if s.is_open else "no session"
    said = [session, "in flight" * bool(s.inflight), "closing" * bool(s.closing), "slot lent" * bool(s.lent)]
    turn = f"turn {PHASE_NAMES[s.phase]}" if s.phase else "no turn"
    steps = f"results still out: {s.pending}" if s.pending else ""
    return ", ".join(part for part in (*said, turn, steps) if part)


def _marks(s: Ledger) -> dict[str, dict[int, list[str]]]:
    """Marks below the row: of the turn, of the slot; letters that stand at the same token together."""
    found: dict[str, dict[int, list[str]]] = {}
    if s.phase in (PREFILL, RUNNING):
        found["of the turn"] = _at({letter: getattr(s, name) for name, letter in LENGTHS.items()})
    elif s.phase == WAITING and s.matched:
        found["what is kept"] = _at({"prefix": s.prefix_len})
        found["of the turn"] = _at({letter: getattr(s, name) for name, letter in LENGTHS.items()})
    if s.slot_held:
        found["of the slot"] = _at({letter: getattr(s, f"slot_{name}") for name, letter in LENGTHS.items()})
    return found


def _at(lengths: dict[str, int]) -> dict[int, list[str]]:
    places: dict[int, list[str]] = {}
    for letter, at in lengths.items():
        if letter != "E" or at:  # no window, no cursor
            places.setdefault(at, []).append(letter)
    return places


def _fields(states: dict[str, Any], d: Integers) -> tuple[list[str], int, int]:
    """Fields of each state, one column a state; what differs from the column before is bold."""
    columns = list(states.items())
    names = [f.name for f in dataclasses.fields(columns[0][1])]
    parts = []
    for number, (title, s) in enumerate(columns):
        left = number * FIELD_WIDTH
        height = LINE * (len(names) + 1) + 12
        parts.append(
            f'<rect x="{left + 2}" y="2" width="{FIELD_WIDTH - 30}" height="{height}" rx="5" fill="none" stroke="currentColor"/>'
        )
        parts.append(_text(left + 12, LINE + 2, title, weight="bold"))
        if number:
            parts.append(_text(left - 14, height / 2, "→", size=18, anchor="middle"))
        for row, name in enumerate(names):
            here, before = getattr(s, name), getattr(columns[max(0, number - 1)][1], name)
            line = f"{name.replace('_', ' ')} = {value(name, here)}"
            parts.append(_text(left + 12, LINE * (row + 2) + 6, line, size=13, weight="bold" if here != before else ""))
    return parts, FIELD_WIDTH * len(columns), LINE * (len(names) + 1) + 18


def _text(x: float, y: float, text: str, size: int = 14, weight: str = "", anchor: str = "") -> str:
    more = f' font-weight="{weight}"' * bool(weight) + f' text-anchor="{anchor}"' * bool(anchor)
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}"{more}>{escape(text)}</text>'
