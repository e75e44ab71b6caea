"""Differences between code and rules as schedules for the release itself: `kvproof fuzz --replay` plays them.

A proof of code reads functions and executes none. A schedule runs the server, records what it does, and replays the record: the
difference has to show again, as the same fault or at the same action.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kvproof.conformance.adapters.sglang.code.functions import PACKAGE
from kvproof.conformance.code_proof.findings import Finding, Shown, actions_of
from kvproof.conformance.fuzz.loads import ANOTHER_OUTPUT, loads_of
from kvproof.conformance.fuzz.schedule import Act, Schedule
from kvproof.conformance.fuzz.sglang import for_sglang
from kvproof.conformance.whole_file import make_folder, writing
from kvproof.model.code.claims import DIFFERS
from kvproof.model.explore import Run, Taken
from kvproof.model.oracle import Oracle
from kvproof.spec.actions import Action
from kvproof.spec.machine import LEDGER
from kvproof.spec.profiles import Profile


def save_loads(findings: Sequence[Finding], profile: Profile | None, folder: Path) -> list[Path]:
    """Writes a file for each load of a function that differs, by the shortest run that shows it."""
    written = []
    with writing(folder):
        make_folder(folder)
        for finding in findings:
            for number, load in enumerate(loads_of_finding(finding, profile), start=1):
                written.append(folder / f"{finding.file_name}-{number}.json")
                load.save(written[-1])
    return written


def loads_of_finding(finding: Finding, profile: Profile | None) -> list[Schedule]:
    """Of each run that leads to a difference, but those by speculation v1, which is not played on SGLang.

    None of a function that follows its rule, or a known fault of the profile, and none of another server's function.
    """
    if finding.verdict != DIFFERS or not (finding.path or "").startswith(f"{PACKAGE}/"):
        return []
    by = profile.name if profile is not None else None
    runs = [run_of(d, actions_of(profile)) for d in finding.differences if d.schedule and not d.state["spec_v1"]]
    loads = (_on_sglang(load, by) for run in runs for load in loads_of(run))
    return list({load.as_json(): load for load in loads}.values())


def run_of(shown: Shown, actions: Mapping[str, Action]) -> Run:
    """The run of the rules by which the difference is shown."""
    state = shown.state
    config = {
        "overlap": bool(state["overlap"]),
        "speculation": 1 if state["spec_v1"] else 2 if state["spec_v2"] else 0,
        "window": state["window"] if state["windowed"] else 0,
        "tree": bool(state["tree"]),
    }
    steps = tuple(_steps(shown, Oracle.of(state["P"], state["row_width"], actions, **config)))
    return Run(state["P"], state["row_width"], steps, {}, config)


def _steps(shown: Shown, oracle: Oracle) -> Iterator[Taken]:
    before = LEDGER.start(oracle.d)
    for call in shown.schedule:
        outcome = oracle.step(oracle.actions[call.action], before, call.params)
        yield Taken(call.params, outcome)
        before = outcome.after


def _on_sglang(load: Schedule, profile: str | None) -> Schedule:
    """A load for SGLang's scheduler, without its own check of each step, which has faults of its own.

    It retracts all that decode but one: so there is another request. Its draft model is right every second time: with two drafts
    a round has one that is rejected.
    """
    of_sglang = for_sglang(load)
    acts = of_sglang.acts
    if any(act.do == "retract" for act in acts) and acts[0].do != "send":
        acts = (Act(do="send", max_new_tokens=ANOTHER_OUTPUT), *acts)
    settings = {**of_sglang.settings, "busy_check": False}
    if "drafts" in settings:
        settings["drafts"] = 2
    return of_sglang.model_copy(update={"acts": acts, "settings": settings, "profile": profile})
