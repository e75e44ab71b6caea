"""False alarms on real SGLang: each scenario again and again, every event judged, until so many steps of its scheduler were.

    PYTHONPATH=tools:benchmarks:.venv-sglang/site/0.5.11 .venv-sglang/bin/python -m soak.sglang_soak
        [--steps N] [--seconds S] [--seed S] [--jobs N] [--out FILE] [SCENARIO ...]

It continues where it was stopped: what was done of a scenario stands in out/soak_sglang/, by release, code and seed.
Scenarios that are known to violate the release's rules stand in docs/findings and are left out: they are no false alarms. They
are run on a copy of the release with the fixes of docs/findings/fixes (`make soak-fixed`), and no deviation is followed there.
Schedulers are built anew every few thousand steps, each time with another page size, pool, seed and vocabulary.
`--seconds` bounds each scenario; what was not reached is said. Exit code 1 if anything is found. With no bound and no names it
writes benchmarks/results/soak_sglang_RELEASE.md, with fixes soak_sglang_RELEASE_fixed.md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from measuring import RESULTS, machine, say
from rule_mutation.mutant_results import digest_of_modules, load, save

from kvproof.conformance.adapters.headless_scheduler import FIRST_ORDINARY_TOKEN, VOCABULARY
from kvproof.conformance.adapters.scenario_run import run_to_its_end
from kvproof.conformance.adapters.sglang.engine import import_sglang
from kvproof.conformance.adapters.sglang.headless import Headless
from kvproof.conformance.adapters.sglang.record import header_of_run, recording, settings_for
from kvproof.conformance.adapters.sglang.scenarios import SCENARIOS
from kvproof.conformance.compiled.choose import AUTO
from kvproof.conformance.fuzz.judging import Judging, NewJudging, judging_by
from kvproof.conformance.replay.rules_of_trace import OF_THE_TRACE
from soak.fixed_release import VARIANT, add_profile_with_fixes, fixes_of

ROOT = Path(__file__).resolve().parents[2]
VERDICTS = ROOT / "tests" / "conformance" / "adapters" / "sglang" / "verdicts_by_profile.json"
ADOPTED = VERDICTS.with_name("adopted.json")
KEPT = ROOT / "out" / "soak_sglang"
DEPENDS_ON = ("kvproof.spec", *(f"kvproof.conformance.{name}" for name in ("compiled", "replay", "adapters")))
STEPS = 200_000
STEPS_OF_A_SCHEDULER = 5000
PAGE_SIZES = (1, 2, 4, 16, 64)
CONSERVATIVENESS = (1.0, 0.3)
VOCABULARIES = (FIRST_ORDINARY_TOKEN + 2, VOCABULARY)
"""Of two tokens many prompts begin alike, and part wherever a page ends."""


@dataclass(frozen=True)
class Drawn:
    """What a scheduler is built with."""

    seed: int
    overrides: dict[str, Any]
    vocabulary: int

    @classmethod
    def by(cls, dice: random.Random) -> Drawn:
        overrides = {"page_size": dice.choice(PAGE_SIZES), "schedule_conservativeness": dice.choice(CONSERVATIVENESS)}
        return cls(dice.randrange(1 << 20), overrides, dice.choice(VOCABULARIES))


@dataclass
class Soaked:
    """One scenario. `found`: what was flagged first on a scheduler, and how often; nothing was judged behind it there."""

    scenario: str
    steps: int = 0
    events: int = 0
    schedulers: int = 0
    seconds: float = 0.0
    found: Counter[str] = field(default_factory=Counter)
    followed: Counter[str] = field(default_factory=Counter)
    """Known deviations of the release that were met, by schedulers."""


class Hearing:
    """Hands what the recorder writes on to what judges it."""

    def __init__(self, judging: Judging) -> None:
        self.judging = judging

    def event(self, **fields: Any) -> None:
        self.judging.see(SimpleNamespace(**fields))


class Kept:
    """What was soaked of a scenario so far, in a file, for one release, one seed and the code as it is."""

    def __init__(self, folder: Path, scenario: str, release: str, seed: int) -> None:
        """`release`: with the names of its fixes."""
        self._path, self._scenario = folder / f"{scenario}.json", scenario
        self._of = f"SGLang {release}, seed {seed}, {digest_of_modules(DEPENDS_ON)}"

    def soaked(self) -> Soaked:
        kept = load(self._path, self._of).get(self._scenario, {"scenario": self._scenario})
        return Soaked(**{**kept, **{name: Counter(kept.get(name, {})) for name in ("found", "followed")}})

    def keep(self, soaked: Soaked) -> None:
        counted = {"found": dict(soaked.found), "followed": dict(soaked.followed)}
        save(self._path, self._of, {self._scenario: {**vars(soaked), **counted}})


def soak(scenario: str, *, steps: int, seed: int, seconds: float, folder: Path) -> Soaked:
    """In a process of its own."""
    new_judging = judging_by(AUTO, float("inf"))
    version, fixes = import_sglang("cpu").version, fixes_in_use()
    profile = add_profile_with_fixes(version) if fixes else OF_THE_TRACE
    kept = Kept(folder, scenario, " ".join([version, *fixes]), seed)
    soaked, until = kept.soaked(), time.monotonic() + seconds
    while soaked.steps < steps and time.monotonic() < until:
        began = time.monotonic()
        drawn = Drawn.by(random.Random(f"{scenario} {seed} {soaked.schedulers}"))
        _one_scheduler(soaked, drawn, new_judging, profile)
        soaked.seconds += time.monotonic() - began
        kept.keep(soaked)
    return soaked


def fixes_in_use() -> tuple[str, ...]:
    [package] = importlib.import_module("sglang").__path__
    return fixes_of(Path(package))


def _one_scheduler(soaked: Soaked, drawn: Drawn, new_judging: NewJudging, profile: str) -> None:
    scenario = SCENARIOS[soaked.scenario]
    settings = settings_for(scenario, 1, drawn.seed, drawn.overrides)
    with Headless(settings, checks=scenario.checks) as headless:
        headless.vocabulary = drawn.vocabulary
        header = header_of_run(headless, soaked.scenario)
        if profile != OF_THE_TRACE:
            header = header.model_copy(update={"known_deviations": ()})
        judging = new_judging(header, profile)
        reason = "finished"
        with recording(headless, Hearing(judging)):
            while headless.steps < STEPS_OF_A_SCHEDULER and reason == "finished" and judging.finding is None:
                reason = run_to_its_end(scenario, headless)
        judging.settle()
        soaked.steps += headless.steps
        soaked.events += judging.seen
        soaked.schedulers += 1
    soaked.followed.update(judging.followed)
    if judging.finding is not None:
        words = f"{judging.finding.event.action}: {', '.join(f.id for f in judging.finding.explained_by) or 'new'}"
        soaked.found[words] += 1
        say(f"FOUND in {soaked.scenario}, {drawn}: {words}, event {judging.finding.event.seq}")
    elif reason != "finished":
        soaked.found[reason] += 1
        say(f"FOUND in {soaked.scenario}, {drawn}: {reason}")


def allowed(release: str) -> tuple[list[str], list[str]]:
    """Scenarios that the rules of the release allow at every page size that is tested; and those that are findings.

    Of a release that `make adopt` took in: what its nearest known release says, but for the runs that differ.
    """
    adopted = json.loads(ADOPTED.read_text()).get(release, {"nearest": release, "differs": {}})
    verdicts = json.loads(VERDICTS.read_text()).get(adopted["nearest"])
    if verdicts is None:
        sys.exit(f"SGLang {release} is in neither {VERDICTS.name} nor {ADOPTED.name}: make adopt RELEASE={release}")
    differs = {run.rpartition("-p")[0] for run in adopted["differs"]}  # a run is a scenario at a page size
    good = [n for n, by_size in verdicts.items() if all(words.startswith("conforms") for words in by_size.values())]
    known = [n for n, by_size in verdicts.items() if any(words.startswith("violates") for words in by_size.values())]
    return [n for n in good if n not in differs], [*known, *differs]


def page_of(release: str, all_soaked: list[Soaked], known: list[str], asked: int, seed: int) -> str:
    """`known`: what was left out because it shows a finding; with fixes nothing is, and what was left out before is asked for."""
    fixes = fixes_in_use()
    if fixes:
        whose, rules = (
            f"SGLang {release} with fixes",
            f"the rules of the release with those of `{VARIANT.relative_to(ROOT)}`",
        )
        which = (
            f"The fixes are {', '.join(fixes)}. "
            "Of each scenario that shows a [finding](../../docs/findings/README.md) without them"
        )
        rest = "No deviation was followed."
    else:
        whose, rules = f"SGLang {release}", "the rules of the release"
        which = "Of each scenario that the release's own rules allow"
        rest = f"Left out, as what they show is a [finding](../../docs/findings/README.md): {', '.join(known)}."
    if any(s.found for s in all_soaked):
        rest += " [What an alarm was](../../docs/trust.md#false-alarms-and-whether-the-interpreters-agree)."
    rows = [
        f"| {s.scenario} | {s.steps:,} | {s.events:,} | {s.schedulers:,} | {s.seconds:.0f} "
        f"| {', '.join(sorted(s.followed)) or '-'} | {', '.join(f'{w} ({n})' for w, n in s.found.items()) or '**none**'} |"
        for s in all_soaked
    ]
    lines = [
        f"# Soak: false alarms on {whose}",
        "",
        f"Written by `make soak{'-fixed' if fixes else ''}`. {machine()}; load at the end: {os.getloadavg()[0]:.0f}. {which} "
        f"{asked:,} steps of the scheduler were asked for; seed {seed}, page sizes {', '.join(map(str, PAGE_SIZES))}, "
        f"a new scheduler every {STEPS_OF_A_SCHEDULER:,} steps or so, half of them with two tokens, so that many prompts begin "
        f"alike. Every event was judged by {rules}.",
        "",
        f"**{sum(s.found.total() for s in all_soaked)}** alarms in {sum(s.steps for s in all_soaked):,} steps. {rest}",
        "",
        "| scenario | steps | events | schedulers | seconds | known deviations that were followed | alarms |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *rows,
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO")
    parser.add_argument("--steps", type=int, default=STEPS, help="of the scheduler, in each scenario")
    parser.add_argument("--seconds", type=float, help="of each scenario, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--out", type=Path, help="write the page there")
    parser.add_argument(
        "--kept", type=Path, default=KEPT, help="the folder with what was done before, and is not done again"
    )
    options = parser.parse_args()
    release = import_sglang("cpu").version
    good, known = allowed(release)
    fixes = fixes_in_use()
    seconds = options.seconds or float("inf")
    one = partial(soak, steps=options.steps, seed=options.seed, seconds=seconds, folder=options.kept)
    all_soaked = []
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("spawn")) as processes:
        for soaked in processes.map(one, options.scenarios or (known if fixes else good)):
            say(
                f"{soaked.scenario}: {soaked.steps:,} steps, {soaked.events:,} events, {soaked.seconds:.0f} s, "
                f"{soaked.found.total()} alarms"
            )
            all_soaked.append(soaked)
    page = RESULTS / f"soak_sglang_{release}{'_fixed' if fixes else ''}.md"
    out = options.out or (page if options.seconds is None and not options.scenarios else None)
    if out is not None:
        out.write_text(page_of(release, all_soaked, known, options.steps, options.seed), encoding="utf-8")
        say(f"written: {out}")
    return 1 if any(s.found for s in all_soaked) else 0


if __name__ == "__main__":
    sys.exit(main())
