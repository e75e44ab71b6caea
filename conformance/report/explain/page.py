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

from kvproof.conformance.replay.finding_words import in_one_sentence
from kvproof.conformance.replay.verdict import Report
from kvproof.conformance.report.explain.account import (
    Account,
    Command,
    Fact,
    Moved,
    Value,
    Wrong,
    account_of,
    commands_of,
)
from kvproof.conformance.report.explain.packed import packed
from kvproof.conformance.report.explain.story import Story, Subject
from kvproof.conformance.report.show_replay import checked, coverage_facts, weaker
from kvproof.spec import SPEC_VERSION

SCRIPTS = ("model.js", "paint.js", "charts.js", "page.js")
FORBIDDEN = "default-src 'none'; base-uri 'none'; form-action 'none'"


def page_of(story: Story, subject: Subject) -> str:
    """The whole page."""
    report, commands = story.report, commands_of(subject, story.report, story.header)
    if report.first is None:
        broke = _unbroken(report, commands)
    else:
        broke = _broke(account_of(report.first, report, subject, story.header), commands)
    parts = {
        "uplot": asset("uplot/uPlot.iife.min.js"),
        "uplot_style": asset("uplot/uPlot.min.css"),
        "style": asset("page.css"),
        "script": _in_a_scope("\n".join(map(asset, SCRIPTS))),
    }
    return Template(asset("page.html")).substitute(
        parts,
        policy=policy([parts["uplot"], parts["script"]], [parts["uplot_style"], parts["style"]]),
        title=escape(f"{_headline(story)}: kvproof, {story.path.name}"),
        headline=escape(_headline(story)),
        verdict=escape(report.verdict),
        facts=escape(_facts_of_run(story)),
        broke=broke,
        footer=escape(
            f"kvproof {version('kvproof')}, specification {SPEC_VERSION}. This page holds all that it shows."
        ),
        story=packed(story),
    )


def asset(name: str) -> str:
    """A file that is a part of pages."""
    return files(__package__).joinpath("assets").joinpath(name).read_text(encoding="utf-8").strip("\n")


def _in_a_scope(script: str) -> str:
    return f'(() => {{\n"use strict";\n{script}\n}})();'


def policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    """What a page may run and look like: this, and nothing that is not in it."""

    def allowed(kind: str, texts: Iterable[str]) -> str:
        digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
        return f"; {kind} " + " ".join(f"'sha256-{digest}'" for digest in digests)

    return FORBIDDEN + (allowed("script-src", scripts) if scripts else "") + allowed("style-src", styles)


def _headline(story: Story) -> str:
    finding = story.report.first
    return in_one_sentence(finding) if finding is not None else story.path.name


def _facts_of_run(story: Story) -> str:
    producer, scenario = story.header.producer, story.header.scenario
    by = f"by the rules of {story.report.profile}; " if story.report.profile else ""
    of = f", {scenario}" if scenario else ""
    return f"{by}{producer.name} {producer.version} ({producer.target}{of}); {checked(story.report)}"


def _broke(account: Account, commands: Iterable[Command]) -> str:
    """What broke, in words and tables."""
    opening = f"{''.join(map(_moved, account.moved))}{_picture(account)}"
    left, right = _facts(account.facts), _values(account.values)
    notes = "".join(f'<p class="dim">{escape(note)}</p>' for note in account.notes)
    return (
        f'<section class="broke" id="broke"><h2>What broke</h2>{opening}'
        f'<div class="columns"><div>{left}</div><div>{right}</div></div>'
        f"{_before(account)}{notes}{_commands(commands)}</section>"
    )


def _unbroken(report: Report, commands: Iterable[Command]) -> str:
    why = [report.why, report.hint, *weaker(report.allowed, report.gaps)]
    said = "".join(f"<p>{escape(line)}</p>" for line in why if line)
    return f"<section id='broke'><h2>Nothing broke</h2>{said}{_exercised(report)}{_commands(commands)}</section>"


def _exercised(report: Report) -> str:
    """What the run did of all that could have been wrong."""
    facts = coverage_facts(report.coverage, [report.profile])
    return f"<h3>What was exercised</h3>{_facts([Fact(label, text) for label, text in facts])}"


def _moved(moved: Moved) -> str:
    """Pages, their owner before and after the event, and the owner by the rule."""
    word = "pages" if "," in moved.pages else "page"
    steps = (
        ("pages", f"{word} {moved.pages}", ""),
        ("owner", moved.owner, "before"),
        ("by", f"{moved.by} →", ""),
        ("owner bad", moved.became, "after"),
        ("owner rule", moved.rule, "by the rule"),
    )
    parts = (f'<span class="{kind}">{escape(text)}<small>{when}</small></span>' for kind, text, when in steps)
    return f'<p class="moved">{" ".join(parts)}</p>'


def _facts(facts: Iterable[Fact]) -> str:
    rows = []
    for fact in facts:
        name = f"<strong{' class=bad' if fact.is_bad else ''}>{escape(fact.name)}</strong>" if fact.name else ""
        rows.append(f"<dt>{fact.label}</dt><dd>{name}{escape(fact.text)}</dd>")
    return f'<dl class="facts">{"".join(rows)}</dl>'


def _values(values: Sequence[Value]) -> str:
    if not values:
        return ""
    heads = "".join(f"<th>{name}</th>" for name in ("value", "before", "by the rule", "as seen"))
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in values)
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _cell(text: str) -> str:
    return f"<td class=differs>{escape(text)} ✗</td>" if isinstance(text, Wrong) else f"<td>{escape(text)}</td>"


def _picture(account: Account) -> str:
    if not account.picture:
        return ""
    *rows, legend = (escape(line.plain) for line in account.picture)
    return f'<pre class="scroll">{chr(10).join(rows)}</pre><p class="dim small">{legend.strip()}</p>'


def _before(account: Account) -> str:
    if not account.before:
        return ""
    listed = escape("\n".join(account.before))
    return f'<details><summary>what led to it</summary><pre class="scroll">{listed}</pre></details>'


def _commands(commands: Iterable[Command]) -> str:
    lines = [
        f'<div class="command"><span>{escape(c.what)}</span><code>{escape(c.line)}</code>'
        '<button type="button" class="copy">copy</button></div>'
        for c in commands
    ]
    return f"<h2>Do it again</h2>{''.join(lines)}"
