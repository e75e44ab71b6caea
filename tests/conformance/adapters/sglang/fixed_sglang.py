"""The fixes of docs/findings/fixes, tried: a copy of SGLang with a fix, what a finding's script says of it, and what the proof of
the code does.

    make fix NAME=own_row

NAME=all makes a copy with all fixes and prints its folder.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import issue_text
from make_env import ENVIRONMENT
from run_findings import FINDINGS, answers_on
from soak.fixed_release import COPIES, rules_of

FIXES = FINDINGS / "fixes"
RELEASE = "0.5.23"
"""The release that the fixes are for."""
SITE = ENVIRONMENT / "site" / RELEASE
ALL = tuple(sorted(patch.stem for patch in FIXES.glob("*.patch")))


def fixed(*fixes: str) -> Path:
    """A folder with the package `sglang` and these fixes, made anew. What no fix changes is a link to what is installed."""
    folder = COPIES / "+".join(fixes)
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(SITE, folder, copy_function=os.link, ignore=shutil.ignore_patterns("__pycache__"))
    patches = [str(FIXES / f"{fix}.patch") for fix in fixes]
    # In a folder that git ignores, it would apply nothing, and say nothing. It replaces a file and writes into none.
    outside_git = {**os.environ, "GIT_CEILING_DIRECTORIES": str(ENVIRONMENT.parent.parent), "GIT_DIR": os.devnull}
    subprocess.run(["git", "apply", "-p2", *patches], cwd=folder, env=outside_git, check=True)
    return folder


def fixable() -> dict[str, str]:
    """Findings whose page links to a fix, and the fix."""
    return {name: fix.stem for name in issue_text.names() for fix in issue_text.fixes(name)}


def proved_on(before: Path, after: Path) -> Iterator[str]:
    """Each claim about SGLang's functions whose verdict the fix changes, as a sentence."""
    from kvproof.conformance.code_proof.findings import in_full
    from kvproof.conformance.code_proof.proving import Proving
    from kvproof.conformance.code_proof.targets import targets_of
    from kvproof.model.cache import Store
    from kvproof.model.cache_folder import cache_folder

    store = Store(cache_folder())
    ([old], [new]) = (targets_of(str(folder)) for folder in (before, after))
    found = [{f.rule: f for f in Proving(target, old.profile(), store, runs=False).all()} for target in (old, new)]
    for rule, finding in found[1].items():
        words = [in_full(of[rule]) if rule in of else "absent" for of in found]
        if words[0] != words[1]:
            yield f"{finding.function} ({rule}): {words[0]} before, {words[1]} with the fix"


def verdicts_on(site: Path, names: Collection[str], variant: Path | None = None) -> dict[str, str]:
    """The verdict on each of these claims about SGLang's functions. `variant`: a file with rules instead of the release's."""
    from kvproof.conformance.adapters.sglang.code.functions import GIVEN, LIBRARIES, claims_of
    from kvproof.conformance.code_proof.targets import targets_of
    from kvproof.model.code.claims import check
    from kvproof.model.code.source import Sources
    from kvproof.spec.actions import ACTIONS

    [target] = targets_of(str(site))
    profile = target.profile()
    assert profile is not None
    rules = rules_of(variant, ACTIONS) if variant else {}
    sources = Sources(target.tree)
    claims = {claim.name: claim for claim in claims_of(sources, {**profile.actions, **rules})}
    return {name: check(claims[name], sources, LIBRARIES, GIVEN).verdict for name in names}


def try_fix(finding: str) -> bool:
    """Says what the fix changes; whether all that the script looks for is gone."""
    fix = fixable()[finding]
    folder = fixed(fix)
    before, after = (answers_on(site, finding) for site in (SITE, folder))
    if not before or before.keys() != after.keys():
        raise RuntimeError(f"{finding} does not say what is there: python docs/findings/{finding}.py")
    print(f"SGLang {RELEASE}, {finding}, with docs/findings/fixes/{fix}.patch")
    for what, is_there in before.items():
        print(
            f"{'there' if is_there else 'not there'} before, {'there' if after[what] else 'not there'} with the fix: {what}"
        )
    print("the proof of the code:", flush=True)
    changed = [*proved_on(SITE, folder)]
    print("\n".join(changed) or "no verdict changes")
    return any(before.values()) and not any(after.values())


def main() -> int:
    parser = argparse.ArgumentParser(description="Try the fix of a finding on a copy of SGLang.")
    parser.add_argument("finding", choices=[*fixable(), "all"])
    asked = parser.parse_args()
    try:
        if asked.finding == "all":
            print(fixed(*ALL))
            return 0
        return 0 if try_fix(asked.finding) else 1
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
