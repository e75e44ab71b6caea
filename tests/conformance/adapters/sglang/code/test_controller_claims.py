"""Each wrong line of a session controller is seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_sglang import claim_checked, write_sglang

from kvproof.model.code.claims import DIFFERS

WRONG = {
    "a busy session is closed at once": ("defer_close", "        if session._inflight:\n", "        if False:\n"),
    "nothing says that a close waits": ("defer_close", "            session.close_on_finish = True\n", ""),
    "a closed session stays": ("close", "        del self.sessions[session_id]\n", ""),
    "a closed session keeps its row": ("close", "        self.tree_cache.release_session(session_id)\n", ""),
    "a session is not opened": (
        "open",
        "if asked.session_id not in self.sessions:",
        "if asked.session_id in self.sessions:",
    ),
    "a session that is opened does not stream": (
        "open",
        "        self.streaming = True\n",
        "        self.streaming = False\n",
    ),
    "a close that waited is forgotten": (
        "close, when its turn has ended",
        "if session.close_on_finish]",
        "if not session.close_on_finish]",
    ),
    "a close that waits is forgotten": (
        "defer_close, until its turn has ended",
        "            self._close(session_id)\n\n    def _close",
        "            pass\n\n    def _close",
    ),
}


@pytest.mark.parametrize(("name", "right", "wrong"), WRONG.values(), ids=WRONG)
def test_a_wrong_line_differs(tmp_path: Path, name: str, right: str, wrong: str) -> None:
    assert claim_checked(write_sglang(tmp_path, right, wrong), name).verdict == DIFFERS
