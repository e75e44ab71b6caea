"""What the adapters of driven schedulers share: how a run ends, whose pages are freed meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kvproof.conformance.adapters.driven_settings import DrivenSettings
from kvproof.conformance.adapters.live.assembly import Assembly
from kvproof.conformance.adapters.scenario_run import NeverIdle, run_to_its_end
from kvproof.conformance.adapters.scheduler_actions import EVICT, RETRACT, SchedulerActions
from kvproof.conformance.errors import UserError

HERE = Path(__file__).parent


def run(schedule: Callable[[Any], None], sources: Path = HERE) -> str:
    return run_to_its_end(SimpleNamespace(run=schedule), SimpleNamespace(sources=sources))


def test_a_run_says_how_it_ended() -> None:
    def never_idle(_: Any) -> None:
        raise NeverIdle("nothing runs any more, but a still wait")

    def crashes(_: Any) -> None:
        raise AssertionError("pool leak\nand a page of figures")

    def crashes_without_a_word(_: Any) -> None:
        raise KeyError

    assert run(lambda _: None) == "finished"
    assert run(never_idle) == "stuck: nothing runs any more, but a still wait"
    assert run(crashes) == "crashed: AssertionError: pool leak"
    assert run(crashes_without_a_word) == "crashed: KeyError"


def test_a_mistake_of_ours_is_raised_and_not_a_reason(tmp_path: Path) -> None:
    """What is under test lies elsewhere, or an adapter was the last of the two to run."""

    def wrong(_: Any) -> None:
        raise ValueError("of a scenario")

    def wrong_in_the_adapter(_: Any) -> None:
        DrivenSettings(page_size=4, pool_tokens=6).require_whole_pages()

    with pytest.raises(ValueError, match="of a scenario"):
        run(wrong, tmp_path)
    with pytest.raises(UserError, match="pool_tokens 6 is no multiple of page_size 4"):
        run(wrong_in_the_adapter)


def test_chunks_are_whole_pages_or_off() -> None:
    DrivenSettings(page_size=4, pool_tokens=8).require_whole_pages()
    with pytest.raises(UserError, match="chunked_prefill_size 10 is no multiple of page_size 4"):
        DrivenSettings(page_size=4, pool_tokens=8, chunked_prefill_size=10).require_whole_pages()


class Tree:
    """Frees `pages`, and `window` pages alone, when it is asked to evict; `again`: by asking itself."""

    def __init__(self, actions: SchedulerActions, pages: list[int], window: list[int], again: bool = False) -> None:
        self.actions, self.pages, self.window, self.again = actions, pages, window, again

    def evict(self, *_: Any) -> str:
        if self.again:
            self.again = False
            return str(self.actions.evict(Tree.evict, self))
        self.actions.innermost.free += self.pages
        self.actions.innermost.window_free += self.window
        return "evicted"


@pytest.fixture
def written() -> list[tuple[str, dict[str, Any]]]:
    return []


@pytest.fixture
def actions(written: list[tuple[str, dict[str, Any]]]) -> SchedulerActions:
    """What they write becomes events once all page ids are here, as in every recorder."""
    assembly = Assembly(4)

    def write(name: str, **fields: Any) -> None:
        for event in assembly.events({"action": name, **fields}):
            written.append((event.pop("action"), event))

    return SchedulerActions(write)


def test_an_eviction_is_one_event_however_the_tree_goes_about_it(actions: SchedulerActions, written: list[Any]) -> None:
    assert actions.evict(Tree.evict, Tree(actions, [3], [], again=True)) == "evicted"
    assert actions.evict(Tree.evict, Tree(actions, [], [])) == "evicted"
    assert actions.evict(Tree.evict, Tree(actions, [], [7])) == "evicted"
    assert written == [(EVICT, {"free": [3], "window_free": []}), (EVICT, {"free": [], "window_free": [7]})]


def test_what_a_retract_evicts_comes_after_it_and_is_not_its_own(actions: SchedulerActions, written: list[Any]) -> None:
    with actions.open(RETRACT) as retract:
        retract.free.append(1)
        actions.evict(Tree.evict, Tree(actions, [3], []))
    assert not written and retract.freed == {"free": [1], "window_free": []}
    actions.write_evicted_after(retract)
    assert written == [(EVICT, {"free": [3], "window_free": []})]


def test_pages_belong_to_the_innermost_action_also_after_an_error(actions: SchedulerActions) -> None:
    with actions.open("keep") as keep:
        with pytest.raises(RuntimeError), actions.open("match"):
            raise RuntimeError
        assert actions.innermost is keep and actions.is_in("keep")
    assert actions.innermost is None and not actions.is_in("keep")


def test_the_first_answer_of_an_insert_counts(actions: SchedulerActions) -> None:
    assert actions.insert(lambda tree, key: key, None, 4) == 4  # of no action: nobody asks
    with actions.open("finish") as finish:
        actions.insert(lambda tree, key: key, None, 8)
        actions.insert(lambda tree, key: key, None, 2)
    assert finish.inserted == 8
