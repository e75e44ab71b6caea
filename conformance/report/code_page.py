"""A proof of code as one page: the functions, and of each difference the run to it and the source of the path. No script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.metadata import version

from kvproof.conformance.code_proof.findings import Finding, Line, Shown, word_of
from kvproof.conformance.errors import at
from kvproof.conformance.report.explain.page import asset, policy
from kvproof.conformance.report.formats.run_events import NOT_REACHED
from kvproof.conformance.report.show_code_proof import (
    Place,
    Told,
    change_of,
    newly_differs,
    state_in_words,
    verdict_of,
)
from kvproof.model.code.claims import ABSENT, DIFFERS, PROVED
from kvproof.spec import SPEC_VERSION

CLASSES = {PROVED: "conforms", DIFFERS: "violates", ABSENT: "dim"}
"""Of the style sheet; what is in neither class has no verdict."""
SCOPE = "for every page size, length and state that the invariants allow"


def code_page(told: Sequence[Told], headline: str) -> str:
    """The whole page. Of a change `told` has both sides, and the differences are those of the second, as is the headline."""
    last = told[-1]
    style = CLASSES.get(verdict_of(last.findings), "incomplete")
    styles = [asset("page.css"), asset("code.css")]
    parts = [
        f'<header><span class="verdict {style}">{escape(headline)}</span>',
        f"<h1>{escape(last.label)}</h1>",
        f'<p class="dim">against {escape(last.rules)}; {SCOPE}</p></header>',
        _change(told[0], last) if len(told) > 1 else "",
        _functions(last),
        *(_finding(finding, last.place) for finding in last.findings if finding.differences or finding.open),
        _assumed(last.findings),
        f'<footer class="dim">kvproof {escape(version("kvproof"))}, specification {escape(SPEC_VERSION)}. '
        "This page holds all that it shows.</footer>",
    ]
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy([], styles))}">',
        '<meta name="viewport" content="width=device-width">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{escape(f'kvproof: {headline}: {last.label}')}</title>",
        *(f"<style>{style}</style>" for style in styles),
    ]
    body = "\n".join(part for part in parts if part)
    return f'<!doctype html>\n<html lang="en"><head>\n{"".join(head)}\n</head>\n<body><main>\n{body}\n</main></body></html>\n'


def _functions(told: Told) -> str:
    rows = []
    for f in told.findings:
        name = f"<code>{escape(f.function)}</code>"
        if f.differences or f.open:
            name = f'<a href="#{_anchor(f)}">{name}</a>'
        where = at(told.place(f.path), f.line) if f.path is not None else ""
        numbers = f'<td class="number">{f.paths}</td><td class="number">{f.seconds:.1f}</td>'
        rows.append([_word(f), name, escape(f.rule), numbers, f"<code>{escape(where)}</code>"])
    heads = (
        "verdict",
        "function",
        "rule",
        '<th class="number" scope="col">paths</th>',
        '<th class="number" scope="col">s</th>',
    )
    return f'<section id="functions"><h2>Functions</h2>{_table((*heads, "file and line"), rows, "functions")}</section>'


def _change(before: Told, after: Told) -> str:
    old = {finding.rule: finding for finding in before.findings}
    rows = []
    for f in after.findings:
        was = old.pop(f.rule, None)
        style = "violates" if newly_differs(was, f) else ""
        said = f'<span class="word {style}">{escape(change_of(was, f))}</span>'
        rows.append([said, f"<code>{escape(f.function)}</code>", _word(was) if was else ABSENT, _word(f)])
    rows += [[escape(change_of(f, None)), f"<code>{escape(f.function)}</code>", _word(f), ABSENT] for f in old.values()]
    table = _table(("change", "function", "before", "after"), rows, "what changed")
    return f'<section id="change"><h2>From {escape(before.label)}</h2>{table}</section>'


def _finding(finding: Finding, place: Place) -> str:
    where = at(place(finding.path or ""), finding.line)
    is_bad = " class=broke" if finding.verdict == DIFFERS else ""
    parts = [f'<section{is_bad} id="{_anchor(finding)}">']
    parts.append(
        f"<h2><code>{escape(finding.function)}</code> ({escape(finding.rule)}): {escape(word_of(finding))}</h2>"
    )
    parts.append(f'<p class="dim"><code>{escape(where)}</code></p>')
    if finding.instead is not None:
        parts.append(f"<p>Every path does exactly what this says: <strong>{escape(finding.instead)}</strong></p>")
    for number, same in enumerate(_with_one_run(finding.differences)):
        parts.append(_difference(same, place, is_open=number == 0))
    if finding.open:
        parts.append(f"<h3>Not understood</h3><ul>{''.join(f'<li>{escape(why)}</li>' for why in finding.open)}</ul>")
    return "".join([*parts, "</section>"])


def _with_one_run(differences: Iterable[Shown]) -> list[list[Shown]]:
    """Statements that fail together: after one run, or in one state, on one path."""
    together: dict[str, list[Shown]] = {}
    for shown in differences:
        key = repr((shown.schedule, shown.state, [(line.path, line.line) for line in shown.lines]))
        together.setdefault(key, []).append(shown)
    return list(together.values())


def _difference(same: Sequence[Shown], place: Place, *, is_open: bool) -> str:
    first = same[0]
    rows = [[escape(d.sentence), escape(d.code), escape(d.rule)] for d in same]
    said = _table(("not so", "the code leaves", "the rule"), rows, "what is not so")
    title = f"{len(same)} {'statements fail' if len(same) > 1 else 'statement fails'}"
    title += f" after {len(first.schedule)} actions" if first.schedule else f", {NOT_REACHED}"
    state = f"<h3>State before</h3><p>{escape(state_in_words(first.state))}</p>"
    body = f"{said}{_schedule(first)}{state}{_source(first.lines, place)}"
    style = "" if first.schedule else ' class="bad"'
    return f"<details{' open' if is_open else ''}><summary{style}>{escape(title)}</summary>{body}</details>"


def _schedule(shown: Shown) -> str:
    if not shown.schedule:
        why = "perhaps the difference starts from a state that is never reached"
        return f'<p class="bad"><strong>{escape(NOT_REACHED[0].upper() + NOT_REACHED[1:])}</strong>: {why}.</p>'
    items = [
        f'<li><code>{escape(str(call))}</code> <span class="dim">{escape("; ".join(call.changed))}</span></li>'
        for call in shown.schedule
    ]
    lead = "A run of the rules from nothing. The last action is as the rule has it; the code does it otherwise."
    return f'<h3>Run</h3><p>{lead}</p><ol class="run">{"".join(items)}</ol>'


def _source(lines: Iterable[Line], place: Place) -> str:
    """The path from its begin to its end: each line that ran, what it asked and what it set."""
    rows, path = [], None
    for line in lines:
        if line.path != path:
            path = line.path
            rows.append(f'<tr><th colspan="3" scope="colgroup">{escape(place(path))}</th></tr>')
        noted = ' class="noted"' if line.notes else ""
        cells = f'<td class="number">{line.line}</td><td class="code">{escape(line.text)}</td>'
        rows.append(f'<tr{noted}>{cells}<td class="note">{escape("; ".join(line.notes))}</td></tr>')
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("line", "source", "asked and set"))
    table = f'<table class="source"><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f"<h3>Path</h3>{_scroll(table, 'source of the path')}"


def _assumed(findings: Iterable[Finding]) -> str:
    assumed = dict.fromkeys(sentence for finding in findings for sentence in finding.assumes)
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in assumed)
    return f'<section id="assumed"><h2>Assumed</h2><ul>{items}</ul></section>' if assumed else ""


def _word(finding: Finding) -> str:
    style = CLASSES.get(finding.verdict, "incomplete")
    return f'<span class="word {style}">{escape(word_of(finding))}</span>'


def _anchor(finding: Finding) -> str:
    return f"rule-{finding.file_name}"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]], label: str) -> str:
    """Cells are HTML; one that is a cell of its own, with a class, stands as it is."""
    head = "".join(h if h.startswith("<th") else f'<th scope="col">{h}</th>' for h in heads)
    body = "".join(f"<tr>{''.join(_cells(row))}</tr>" for row in rows)
    return _scroll(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>", label)


def _cells(row: Iterable[str]) -> Iterator[str]:
    for cell in row:
        yield cell if cell.startswith("<td") else f"<td>{cell}</td>"


def _scroll(table: str, label: str) -> str:
    """With a keyboard, too, a table that is wider than the screen is scrolled."""
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">{table}</div>'
