"""The lengths of a row as a picture in letters: which tokens are the tree's, committed, only allocated, or out of the window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.text import Text

from kvproof.conformance.report.explain.story import Lengths

WIDEST = 64
"""Letters of a picture, the bars between pages not counted."""
TREES, EVICTED, COMMITTED, ALLOCATED, UNBACKED = "▒", "×", "█", "░", "!"
STYLES = {EVICTED: "yellow", ALLOCATED: "cyan", UNBACKED: "bold red", TREES: "dim"}
LEGEND = (
    (TREES, "the tree's, below cache_protected_len"),
    (EVICTED, "out of the window, below swa_evicted_seqlen"),
    (COMMITTED, "committed, below kv_committed_len"),
    (ALLOCATED, "allocated only, below kv_allocated_len"),
    (UNBACKED, "committed, but no page"),
)


def pictures(rows: Sequence[tuple[str, Lengths]], page_size: int) -> list[Text]:
    """Rows of lengths under each other on one scale, each with its name and its numbers; then a legend of what is drawn."""
    longest = max((max(lengths[1:]) for _, lengths in rows), default=0)
    if not longest:
        return []
    unit = max(1, -(-longest // WIDEST))
    wide = max(len(name) for name, _ in rows)
    strips = [(name, strip(lengths, page_size, longest, unit), lengths) for name, lengths in rows]
    most = max(len(drawn) for _, drawn, _ in strips)
    lines = []
    for name, drawn, lengths in strips:
        line = Text(f"{name:<{wide}}  ")
        for letter in drawn:
            line.append(letter, STYLES.get(letter, ""))
        numbers = str(lengths) if lengths.whose else "no row"
        lines.append(line.append(" " * (most - len(drawn) + 2)).append(numbers, "dim"))
    scale = f"each character is {unit} tokens" if unit > 1 else "each character is one token"
    used = {letter for _, drawn, _ in strips for letter in drawn}
    return [*lines, Text(" " * (wide + 2) + "; ".join([scale, f"a page: {page_size}", *_legend(used)]), "dim")]


def _legend(used: Iterable[str]) -> list[str]:
    shown = set(used)
    return [f"{letter} {meaning}" for letter, meaning in LEGEND if letter in shown]


def strip(lengths: Lengths, page_size: int, longest: int, unit: int) -> str:
    """One row, a letter for `unit` tokens, with bars between pages where a page has two letters or more."""
    letters = []
    for token in range(0, max(1, longest), unit):
        if token and page_size >= 2 * unit and token % page_size < unit:
            letters.append("│")
        letters.append(_letter(lengths, token))
    return "".join(letters).rstrip(" │")


def _letter(s: Lengths, token: int) -> str:
    if token < s.r:
        return TREES
    if token < s.e:
        return EVICTED
    if token < min(s.c, s.a):
        return COMMITTED
    if token < s.a:
        return ALLOCATED
    return UNBACKED if token < s.c else " "
