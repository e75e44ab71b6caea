"""All edits of traces by name: harmful ones by topic, then those that must still conform."""

from __future__ import annotations

from referee.cases import Edit
from referee.traces.batches import BATCHES
from referee.traces.checks import CHECKS
from referee.traces.fields import OFF_BY_ONE, UNSEEN
from referee.traces.harmless import HARMLESS
from referee.traces.header import HEADER, ROWS
from referee.traces.order import END, EVENTS, RESULTS
from referee.traces.pages import PAGES
from referee.traces.tree import TREE

TOPICS = (UNSEEN, OFF_BY_ONE, PAGES, TREE, BATCHES, EVENTS, RESULTS, END, HEADER, ROWS, CHECKS, HARMLESS)
EDITS: dict[str, Edit] = {name: edit for topic in TOPICS for name, edit in topic.items()}
