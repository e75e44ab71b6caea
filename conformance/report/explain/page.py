"""The report as one page: no network, nothing beside it, and nothing of a trace is ever read as HTML or run.

What broke is written into the page as text, so that it can be read, searched and printed without a script. The charts are drawn
in the browser, from the story (`packed.py`), with uPlot: 50 KB, no dependencies, canvases that take 100,000 events, MIT. It
stands in the package as its release is (`assets/uplot/`).

Which scripts and styles may run is said by their hashes, in a policy that also forbids every request.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files
from string import Template

from kvproof.conformance.replay.verdict import VIOLATES, Finding
from kvproof.conformance.report.explain.account import (
    Wrong,
    commands_of,
    events_before,
    facts_of,
    in_one_sentence,
    is_shortest,
    lengths_around,
    values_of,
)
from kvproof.conformance.report.explain.packed import packed
from kvproof.conformance.report.explain.picture import pictures
from kvproof.conformance.report.explain.story import Story
from kvproof.conformance.report.explain.subject import Subject
from kvproof.conformance.report.show_replay import checked
from kvproof.spec import SPEC_VERSION

SCRIPTS = ("model.js", "paint.js", "charts.js", "page.js")
MOST_PAGES = 12
FORBIDDEN = "default-src 'none'; base-uri 'none'; form-action 'none'"


def page_of(story: Story, subject: Subject) -> str:
    """The whole page."""
    report = story.report
    parts = {
        "uplot": _asset("uplot/uPlot.iife.min.js"),
        "uplot_style": _asset("uplot/uPlot.min.css"),
        "style": _asset("page.css"),
        "script": _in_a_scope("\n".join(map(_asset, SCRIPTS))),
    }
    return Template(_asset("page.html")).substitute(
        parts,
        policy=_policy([parts["uplot"], parts["script"]], [parts["uplot_style"], parts["style"]]),
        title=escape(f"kvproof: {report.verdict} {story.path.name}"),
        headline=escape(_headline(story)),
        verdict=escape(report.verdict),
        facts=escape(_facts_of_run(story)),
        broke=_broke(report.first, story, subject) if report.first is not None else _unbroken(story, subject),
        footer=escape(
            f"kvproof {version('kvproof')}, specification {SPEC_VERSION}. This page holds all that it shows."
        ),
        story=packed(story),
    )


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8").strip("\n")


def _in_a_scope(script: str) -> str:
    return f'(() => {{\n"use strict";\n{script}\n}})();'


def _policy(scripts: Iterable[str], styles: Iterable[str]) -> str:
    def hashes(texts: Iterable[str]) -> str:
        digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
        return " ".join(f"'sha256-{digest}'" for digest in digests)

    return f"{FORBIDDEN}; script-src {hashes(scripts)}; style-src {hashes(styles)}"


def _headline(story: Story) -> str:
    finding = story.report.first
    if finding is None:
        return story.path.name
    broken = ", ".join(finding.invariants) or "the order of events"
    return f"{story.path.name}: {finding.action} breaks {broken}"


def _facts_of_run(story: Story) -> str:
    producer, scenario = story.header.producer, story.header.scenario
    by = f"by the rules of {story.report.profile}; " if story.report.profile else ""
    of = f", {scenario}" if scenario else ""
    return f"{by}{producer.name} {producer.version} ({producer.target}{of}); {checked(story.report)}"


def _broke(finding: Finding, story: Story, subject: Subject) -> str:
    """What broke, in words and tables."""
    left = [f'<p class="lead bad">{escape(in_one_sentence(finding))}</p>', _facts(finding)]
    right = [_pages(finding), _values(finding), _picture(finding, story)]
    rest = [_before(finding), _others(story), _commands(story, subject)]
    columns = f'<div class="columns"><div>{"".join(left)}</div><div>{"".join(right)}</div></div>'
    return f'<section class="broke" id="broke"><h2>What broke</h2>{columns}{"".join(rest)}</section>'


def _unbroken(story: Story, subject: Subject) -> str:
    report = story.report
    why = [report.why, report.hint, *(f"not checked: {gap}" for gap in report.gaps)]
    said = "".join(f"<p>{escape(line)}</p>" for line in why if line)
    return f"<section id='broke'><h2>Nothing broke</h2>{said}{_commands(story, subject)}</section>"


def _facts(finding: Finding) -> str:
    rows = []
    for fact in facts_of(finding):
        name = f"<strong{' class=bad' if fact.is_bad else ''}>{escape(fact.name)}</strong>" if fact.name else ""
        rows.append(f"<dt>{fact.label}</dt><dd>{name}{escape(fact.text)}</dd>")
    return f'<dl class="facts">{"".join(rows)}</dl>'


def _pages(finding: Finding) -> str:
    if not finding.wrong:
        return "".join(f"<p>{escape(line)}</p>" for line in finding.pages[:MOST_PAGES])
    rows = [(str(one.page), one.owner, Wrong(one.became), one.rule) for one in finding.wrong[:MOST_PAGES]]
    table = _table(("page", "owner before", "owner now", "by the rule"), rows)
    left = len(finding.wrong) - MOST_PAGES
    return table + (f'<p class="dim">and {left} more pages</p>' if left > 0 else "")


def _values(finding: Finding) -> str:
    values = values_of(finding)
    return _table(("value", "before", "by the rule", "as seen"), values) if values else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    heads = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(text: str) -> str:
    return f"<td class=differs>{escape(text)} ✗</td>" if isinstance(text, Wrong) else f"<td>{escape(text)}</td>"


def _picture(finding: Finding, story: Story) -> str:
    page_size = story.header.config.page_size
    drawn = pictures(lengths_around(finding, page_size), page_size)
    if not drawn:
        return ""
    *rows, legend = (escape(line.plain) for line in drawn)
    return f'<pre class="scroll">{chr(10).join(rows)}</pre><p class="dim small">{legend.strip()}</p>'


def _before(finding: Finding) -> str:
    lines = events_before(finding)
    if not lines:
        return ""
    listed = "\n".join([*lines, f"event {finding.event.seq} is the bad one"])
    return f'<details><summary>what led to it</summary><pre class="scroll">{escape(listed)}</pre></details>'


def _others(story: Story) -> str:
    left = len(story.report.findings) - 1
    return f"<p class='dim'>and {left} more findings behind it, marked in the charts</p>" if left > 0 else ""


def _commands(story: Story, subject: Subject) -> str:
    lines = [
        f'<div class="command"><span>{escape(c.what)}</span><code>{escape(c.line)}</code>'
        '<button type="button" class="copy">copy</button></div>'
        for c in commands_of(subject, story.report, story.header)
    ]
    if story.report.verdict == VIOLATES and is_shortest(subject, story.header):
        lines.append('<p class="dim">this trace is as short as they get that show it</p>')
    return f"<h2>Do it again</h2>{''.join(lines)}"
