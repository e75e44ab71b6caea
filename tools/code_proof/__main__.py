"""Checks the session cache of an unpacked SGLang: `python -m code_proof FOLDER`, with tools/ on the path.

`--profile auto` takes the rules of the release's profile (`spec/profiles.py`), and says where a function does exactly what one of
its known faults says. `--profile NAME` takes those of another one.

Exits with 0 if every claim is proved, or is a known fault of the profile, 1 if a function differs from its rule, 2 if nothing was
checked, else 3.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from code_proof.claims import ABSENT, DIFFERS, PROVED, Claim, Verdict, check
from code_proof.sglang_claims import PARTS, session_cache
from code_proof.sglang_designs import DESIGNS
from code_proof.sglang_layout import CACHES, splits_at_cursor
from code_proof.sglang_objects import TORCH
from code_proof.source import Folder, Sources
from code_proof.values import Known, Record
from kvproof.spec.actions import ACTIONS, Action
from kvproof.spec.faults import FAULTS
from kvproof.spec.machine import LEDGER
from kvproof.spec.profiles import PROFILES, Profile, profile_of

# What the functions ask of the server's settings, and of the machine that it runs on.
SETTINGS = Record(strip_thinking_cache=False)
GIVEN = {
    "sglang.srt.managers.schedule_batch.get_global_server_args": Known("get_global_server_args", lambda: SETTINGS),
    "sglang.srt.utils.common.is_npu": Known("is_npu", lambda: False),
    "sglang.srt.mem_cache.unified_cache.component_type.ComponentType": Record(FULL=0, SWA=1, MAMBA=2),
}
KNOWN_FAULT = "known fault"


@dataclass(frozen=True)
class Finding:
    """What is said of one function. `instead`: the fault or the design that it follows where it differs from its rule."""

    word: str
    verdict: Verdict
    instead: str | None = None


def verdicts(folder: Path, profile: Profile | None = None, names: Collection[str] = ()) -> list[Finding]:
    """One for each claim, or for those of the `names`; none where the folder holds no session cache that is known."""
    sources = Sources(Folder(folder))
    known = next(((module, name) for module, name in CACHES.items() if sources.module(module)), None)
    if known is None:
        return []
    module = sources.module(known[0])
    assert module is not None
    is_owned = module.definition(f"{known[1]}.match_prefix") is None
    splits = splits_at_cursor(sources)

    def claims(actions: Mapping[str, Action]) -> dict[str, Claim]:
        return {c.name: c for c in session_cache(actions, is_owned=is_owned, splits_at_cursor=splits)}

    def checked(claim: Claim, *, to_the_first_difference: bool = False) -> Verdict:
        placed = dataclasses.replace(claim, module=known[0], function=f"{known[1]}.{claim.function}")
        return check(placed, sources, {"torch": TORCH}, GIVEN, to_the_first_difference=to_the_first_difference)

    actions = profile.actions if profile is not None else ACTIONS
    found = []
    for name, claim in claims(actions).items():
        if names and name not in names:
            continue
        verdict = checked(claim)
        instead = None
        if verdict.verdict == DIFFERS:
            for label, others in _others(name):
                if checked(claims({**actions, **others})[name], to_the_first_difference=True).verdict == PROVED:
                    instead = label
                    break
        is_known = instead is not None and profile is not None and instead in profile.deviations
        found.append(Finding(f"{KNOWN_FAULT} {instead}" if is_known else verdict.verdict, verdict, instead))
    return found


def _others(name: str) -> Iterator[tuple[str, Mapping[str, Action]]]:
    """Rules that an action may follow instead: faults of the catalogue, and designs that no profile has yet."""
    for label, fault in FAULTS.items():
        if fault.machine is LEDGER and name in fault.deviations:
            yield label, fault.deviations
    yield from ((label, actions) for label, actions in DESIGNS.items() if name in actions)


def exit_code(found: list[Finding]) -> int:
    names = {finding.word for finding in found} - {ABSENT}
    if not names:
        return 2
    if DIFFERS in names:
        return 1
    return 0 if all(name == PROVED or name.startswith(KNOWN_FAULT) for name in names) else 3


def version_of(folder: Path) -> str | None:
    """The version of SGLang that a folder says it holds: by the metadata of an unpacked wheel."""
    names = (re.fullmatch(r"sglang-(.+)\.dist-info", found.name) for found in sorted(folder.glob("sglang-*.dist-info")))
    return next((name[1] for name in names if name), None)


def chosen(name: str, folder: Path) -> Profile | None:
    """The profile of a name; of "auto" that of the folder's release, if one is known."""
    if name == "none":
        return None
    if name == "auto":
        version = version_of(folder)
        return profile_of(f"sglang {version}") if version else None
    if name not in PROFILES:
        sys.exit(f"no profile {name!r}: choose auto, none or one of {', '.join(PROFILES)}")
    return PROFILES[name]


def main() -> None:
    parser = argparse.ArgumentParser(prog="code_proof", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--profile", default="none", metavar="NAME", help="auto, none or a name (default: none)")
    parser.add_argument("--only", action="append", choices=tuple(PARTS), help="one claim; may be given several times")
    asked = parser.parse_args()
    profile = chosen(asked.profile, asked.folder)
    if asked.profile != "none":
        print(f"rules: {profile.name if profile else 'the model, as no profile of this release is known'}")
    found = verdicts(asked.folder, profile, asked.only or ())
    for finding in found:
        verdict = finding.verdict
        ran = f"{len(verdict.paths)} paths, {verdict.seconds:.1f} s"
        print(f"{finding.word:18} {verdict.claim.name:12} {verdict.place}  {ran}")
        if finding.instead is not None:
            print(f"    proved instead: {finding.instead}")
        for sentence in sorted({d.sentence for path in verdict.paths for d in path.differences}):
            print(f"    not so: {sentence}")
        for ended in sorted({f"{path.place}: {path.ended}" for path in verdict.paths if not path.understood}):
            print(f"    {ended}")
    sys.exit(exit_code(found))


if __name__ == "__main__":
    main()
