"""Each wrong line of what creates a turn is seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_sglang import claim_checked, write_sglang

from kvproof.model.code.claims import DIFFERS, NOT_UNDERSTOOD, PROVED

WRONG = {
    "the output of the last turn is left out": (
        "create",
        "last.req.origin_input_ids + last.req.output_ids + tokens",
        "last.req.origin_input_ids + tokens",
    ),
    "the last turn is forgotten": ("create", "if self.req_nodes and not refused:", "if False:"),
    "the turn is not marked": ("create", "        self._inflight = True\n        return turn", "        return turn"),
    "the turn is the last one": (
        "create",
        "            [last] = self.req_nodes.values()\n            tokens",
        "            [last] = self.req_nodes.values()\n            self.req_nodes = {}\n            tokens",
    ),
    "a second turn is admitted": ("refuse", "refused = self._inflight", "refused = False"),
    "a refused turn stays the session's": ("pass_by", "            turn.session = None\n", ""),
    "a refused turn is admitted, and matched": ("pass_by", "refused = self._inflight", "refused = False"),
    "a refused turn clears the marker": (
        "refuse",
        "        self._inflight = True\n        return turn",
        "        self._inflight = not refused\n        return turn",
    ),
}


@pytest.mark.parametrize(("name", "right", "wrong"), WRONG.values(), ids=WRONG)
def test_a_wrong_line_differs(tmp_path: Path, name: str, right: str, wrong: str) -> None:
    assert claim_checked(write_sglang(tmp_path, right, wrong), name).verdict == DIFFERS


AT_ITS_END = "        self._inflight = True\n        return turn"


def test_a_refused_turn_may_have_no_session_and_an_admitted_one_may_not(tmp_path: Path) -> None:
    verdicts = {}
    for when in ("if refused:", "if True:"):
        apart = f"        self._inflight = True\n        {when}\n            turn.session = None\n        return turn"
        checked = [claim_checked(write_sglang(tmp_path, AT_ITS_END, apart), name) for name in ("create", "refuse")]
        verdicts[when] = [claim.verdict for claim in checked]
    assert verdicts == {"if refused:": [PROVED, PROVED], "if True:": [NOT_UNDERSTOOD, PROVED]}
