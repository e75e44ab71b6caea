"""All variants by name: wrong ones by topic, then those that must be proved."""

from __future__ import annotations

from referee.cases import Variant
from referee.variants.arrivals import ARRIVALS
from referee.variants.assumed import ASSUMED
from referee.variants.checkpoint import CHECKPOINT
from referee.variants.closing import CLOSING
from referee.variants.deceits import DECEITS
from referee.variants.frees import FREES
from referee.variants.ghosts import GHOSTS
from referee.variants.harmless import HARMLESS
from referee.variants.inserts import INSERTS
from referee.variants.interrupted import INTERRUPTED
from referee.variants.launches import LAUNCHES
from referee.variants.memory_check import MEMORY_CHECK
from referee.variants.other_events import OTHER_EVENTS
from referee.variants.outputs import OUTPUTS
from referee.variants.rows_and_locks import ROWS_AND_LOCKS
from referee.variants.seldom import SELDOM
from referee.variants.speculation import SPECULATION
from referee.variants.unstated import UNSTATED
from referee.variants.window import WINDOW

TOPICS = (
    UNSTATED,
    INSERTS,
    OUTPUTS,
    CLOSING,
    CHECKPOINT,
    MEMORY_CHECK,
    GHOSTS,
    SELDOM,
    FREES,
    ROWS_AND_LOCKS,
    WINDOW,
    SPECULATION,
    INTERRUPTED,
    ARRIVALS,
    ASSUMED,
    OTHER_EVENTS,
    LAUNCHES,
    DECEITS,
    HARMLESS,
)
VARIANTS: dict[str, Variant] = {name: variant for topic in TOPICS for name, variant in topic.items()}
