"""The summary of a campaign as one page that needs no network: numbers, growth as curves, findings. Light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from typing import Any

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 220, 64, 130, 12, 28
FEWEST_TICKS = 3
Data = dict[str, Any]

CHARTS: tuple[tuple[str, tuple[tuple[str, str], ...], bool], ...] = (
    ("Steps", (("steps", "steps"),), False),
    (
        "Coverage of the model",
        (("branches", "branches of guards"), ("actions", "actions"), ("invariants", "invariants")),
        False,
    ),
    ("Abstract states", (("states", "states"),), False),
    ("Kinds of trouble", (("found", "found"),), True),
)
"""Title, the curves with their names, and whether they go in stairs."""

STYLE = """
:root { color-scheme: light dark; --text: #1c2024; --dim: #62676c; --line: #d9dce0; --back: #ffffff; --card: #f6f7f8;
  --c0: #0b63ce; --c1: #a2520a; --c2: #1a7f37; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e8ea; --dim: #9aa0a6; --line: #3a3f45; --back: #15181b;
  --card: #1e2226; --c0: #6ab0ff; --c1: #f0a35e; --c2: #5fc97e; --bad: #ff8a80; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: var(--text); background: var(--back);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
p { margin: .2rem 0; } .dim { color: var(--dim); } code { font-family: ui-monospace, monospace; font-size: .92em; }
a { color: var(--c0); }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(8rem, 1fr)); gap: .6rem; margin: 1.2rem 0; }
dl div { background: var(--card); border-radius: 8px; padding: .5rem .8rem; }
dt { color: var(--dim); font-size: .85rem; } dd { margin: 0; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
svg { display: block; width: 100%; height: auto; background: var(--card); border-radius: 8px; }
svg text { fill: var(--dim); font: 11px system-ui, sans-serif; } .axis { stroke: var(--line); }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); } .c2 { stroke: var(--c2); } .curve { fill: none; stroke-width: 2; }
svg text.c0 { fill: var(--c0); stroke: none; } svg text.c1 { fill: var(--c1); stroke: none; }
svg text.c2 { fill: var(--c2); stroke: none; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .35rem .6rem; vertical-align: top;
  border-bottom: 1px solid var(--line); } th { color: var(--dim); font-weight: 500; } .number { text-align: right;
  font-variant-numeric: tabular-nums; } .new { color: var(--bad); font-weight: 600; }
"""


def summary_page(summary: Data) -> str:
    """`summary`: what `summary.json` holds. Everything in it is escaped: names of settings and errors are anybody's."""
    title = f"kvproof fuzz: {summary['target']}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        *_chosen(summary),
        _numbers(summary),
        "<h2>What was found</h2>",
        _findings(summary["found"]),
    ]
    for name, curves, stairs in CHARTS:
        parts += [f"<h2>{escape(name)}</h2>", _chart(name, curves, summary["growth"], stairs)]
    body = "\n".join(parts)
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n{body}\n</body></html>\n'
    )


def _chosen(summary: Data) -> Iterable[str]:
    faults = ", ".join(map(str, summary["faults"])) or "none"
    settings = ", ".join(f"{name}={value}" for name, value in summary["settings"].items()) or "none"
    said = f"seed {summary['seed']}; faults switched on: {faults}; settings kept: {settings}"
    yield f'<p class="dim">{escape(said)}</p>'
    if summary["died"]:
        yield f"<p>{summary['died']:,} jobs died and were begun again.</p>"


def _numbers(summary: Data) -> str:
    shown = {
        "schedules": f"{summary['schedules']:,}",
        "steps": f"{summary['steps']:,}",
        "steps/s": f"{summary['steps_per_second']:,}",
        "events judged": f"{summary['events']:,}",
        "seconds": f"{summary['seconds']:,.0f}",
        "jobs": f"{summary['jobs']:,}",
        "kinds of trouble": f"{len(summary['found']):,}",
    }
    return "<dl>" + "".join(f"<div><dt>{escape(n)}</dt><dd>{escape(v)}</dd></div>" for n, v in shown.items()) + "</dl>"


def _findings(found: Sequence[Data]) -> str:
    if not found:
        return "<p>Nothing.</p>"
    rows = []
    for one in found:
        known = escape(", ".join(one["faults"])) or '<span class="new">new</span>'
        place = escape(str(one["number"]), quote=True)
        cells = f"<td><a href='{place}/report.txt'>{place}</a></td>"
        cells += f"<td><code>{escape(one['signature'])}</code></td><td>{known}</td>"
        numbers = (f"{one['acts']:,}", f"{one['times']:,}", f"{one['after_seconds']:,.1f} s")
        rows.append(f"<tr>{cells}" + "".join(f'<td class="number">{escape(n)}</td>' for n in numbers) + "</tr>")
    heads = "".join(f"<th>{name}</th>" for name in ("", "trouble", "fault"))
    heads += "".join(f"<th class='number'>{name}</th>" for name in ("acts", "times", "first after"))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _chart(title: str, curves: Sequence[tuple[str, str]], growth: Sequence[Data], stairs: bool) -> str:
    """Over the seconds of the campaign; each curve named at its end."""
    if not growth:
        return "<p>Nothing was sampled.</p>"
    last, most = max(1.0, growth[-1]["seconds"]), max(1, max(s[name] for s in growth for name, _ in curves))
    across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def x(seconds: float) -> float:
        return LEFT + across * seconds / last

    def y(value: float) -> float:
        return TOP + down * (1 - value / most)

    lines = []
    for value in _ticks(most):
        lines.append(f'<line class="axis" x1="{LEFT}" x2="{LEFT + across}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:,}</text>')
    for seconds in _ticks(last):
        lines.append(f'<text x="{x(seconds):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{seconds:,} s</text>')
    names = _apart([y(growth[-1][name]) for name, _ in curves])
    for number, (name, said) in enumerate(curves):
        points = [(x(0), y(0)), *((x(s["seconds"]), y(s[name])) for s in growth)]
        if stairs:
            points = points[:1] + [p for (_, v0), (t1, v1) in pairwise(points) for p in ((t1, v0), (t1, v1))]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        lines.append(f'<polyline class="curve c{number}" points="{path}"/>')
        label = f'<text class="c{number}" x="{LEFT + across + 6}" y="{names[number] + 4:.1f}">{escape(said)}</text>'
        lines.append(label)
    said = escape(f"{title} over {last:,.0f} seconds", quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{said}">{"".join(lines)}</svg>'


def _ticks(most: float) -> list[int]:
    """Round numbers from 0 on, a few of them."""
    powers = range(len(str(int(most))))
    steps = (digit * 10**power for power in powers for digit in (5, 2, 1) if digit * 10**power * FEWEST_TICKS <= most)
    return list(range(0, int(most) + 1, max(steps, default=1)))


def _apart(places: Sequence[float], least: float = 13.0) -> list[float]:
    """Heights in pixels, moved down so that no two names stand over each other."""
    moved = dict[int, float]()
    before = float("-inf")
    for number in sorted(range(len(places)), key=lambda n: places[n]):
        before = moved[number] = max(places[number], before + least)
    return [moved[number] for number in range(len(places))]
