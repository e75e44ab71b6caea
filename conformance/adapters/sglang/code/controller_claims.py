"""What the session controller does to a session: opened, closed at once or when its turn has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kvproof.conformance.adapters.sglang.code.claims import RIGHT, YES, Release
from kvproof.conformance.adapters.sglang.code.layout import CONTROLLERS, class_at
from kvproof.conformance.adapters.sglang.code.session import SessionScene
from kvproof.model.code.claims import Claim, follows
from kvproof.model.code.values import Instance, Record
from kvproof.model.symbolic import Symbols
from kvproof.spec.state import Ledger

ASSUMED = ("no session times out", "no session pins nodes of the tree")
AS_ASKED = "the session has the id that it was opened with, and streams"
LAST_REAP, NOW, INTERVAL = 0, 2, 1
"""Seconds."""


def controller(release: Release) -> Iterator[Claim]:
    """The claims about opening and closing a session, and about closing one later that was busy."""
    yield _claim(release, "open", "open", _open)
    yield _claim(release, "close", "close", _close)
    yield _claim(release, "defer_close", "close", _close)
    yield _claim(release, "close, when its turn has ended", "maybe_reap", _reap, "close", _waits_to_close)
    yield _claim(release, "defer_close, until its turn has ended", "maybe_reap", _reap, "defer_close", _waits_to_close)


def _claim(
    release: Release,
    name: str,
    function: str,
    act: Callable[[SessionScene, Instance], Any],
    action: str = "",
    given: Callable[[Symbols, Ledger], tuple[Any, ...]] = lambda d, s: (),
) -> Claim:
    rule = follows(
        release.actions[action or name],
        values=lambda d, s, after: {**RIGHT, AS_ASKED: YES},
        given=lambda d, s: (*given(d, s), *release.given(d, s)),
    )
    places = dict.fromkeys(CONTROLLERS, f"SessionController.{function}")
    return release.claim(
        name, places, rule, lambda scene: act(scene, _controller(scene)), _sessions, action=action, assumes=ASSUMED
    )


def _waits_to_close(d: Symbols, s: Ledger) -> tuple[Any, ...]:
    return (s.closing,)


def _controller(scene: SessionScene) -> Instance:
    """The controller, in whose table the session is as long as it is open."""
    scene.settle()
    scene.session.fields["timeout"] = None
    is_open = scene.run.paths.decide(scene.s.is_open)
    sessions = {scene.session_id: scene.session} if is_open else {}
    fields = {"sessions": sessions, "tree_cache": scene.tree_cache, "_last_reap_time": LAST_REAP}
    scene.controller = Instance(class_at(scene.run, dict.fromkeys(CONTROLLERS, "SessionController")), fields)
    return scene.controller


def _open(scene: SessionScene, made: Instance) -> Any:
    asked = Record(session_id=scene.session_id, capacity_of_str_len=0, streaming=True, timeout=None)
    return scene.run.call(scene.run.attribute(made, "open"), [asked], {})


def _close(scene: SessionScene, made: Instance) -> Any:
    return scene.run.call(scene.run.attribute(made, "close"), [Record(session_id=scene.session_id)], {})


def _reap(scene: SessionScene, made: Instance) -> Any:
    return scene.run.call(scene.run.attribute(made, "maybe_reap"), [NOW, INTERVAL], {})


def _sessions(scene: SessionScene, result: Any) -> dict[str, Any]:
    """Of a session that is there also its marker, its checkpoint, and whether a close waits."""
    session = scene.controller.fields["sessions"].get(scene.session_id)
    shown = {**scene.held(), "is_open": session is not None}
    if session is None:
        return shown
    scene.session = session
    shown[AS_ASKED] = session.fields["session_id"] is scene.session_id and session.fields["streaming"] is True
    return {**shown, **scene.session_fields(), "closing": session.fields.get("close_on_finish", scene.d.false)}
