"""Checks the session cache of an unpacked SGLang: `python -m code_proof FOLDER`, with tools/ on the path.

Exits with 0 if every claim is proved, 1 if a function differs from its rule, 2 if nothing was checked, else 3.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from code_proof.claims import ABSENT, DIFFERS, PROVED, Verdict, check
from code_proof.sglang_claims import SESSION_CACHE
from code_proof.sglang_objects import TORCH
from code_proof.sglang_session import CACHES
from code_proof.source import Folder, Sources
from code_proof.values import Known, Record

# What the functions ask of the server's settings.
SETTINGS = Record(strip_thinking_cache=False)
GIVEN = {
    "sglang.srt.managers.schedule_batch.get_global_server_args": Known("get_global_server_args", lambda: SETTINGS),
}


def verdicts(folder: Path) -> list[Verdict]:
    """One for each claim; none where the folder holds no session cache that is known."""
    sources = Sources(Folder(folder))
    known = next(((module, name) for module, name in CACHES.items() if sources.module(module)), None)
    if known is None:
        return []
    module, cache = known
    claims = (dataclasses.replace(c, module=module, function=f"{cache}.{c.function}") for c in SESSION_CACHE)
    return [check(claim, sources, {"torch": TORCH}, GIVEN) for claim in claims]


def exit_code(found: list[Verdict]) -> int:
    names = {verdict.verdict for verdict in found} - {ABSENT}
    if not names:
        return 2
    if DIFFERS in names:
        return 1
    return 0 if names == {PROVED} else 3


def main() -> None:
    found = verdicts(Path(sys.argv[1]))
    for verdict in found:
        print(
            f"{verdict.verdict:15} {verdict.claim.name:12} {verdict.place}  {len(verdict.paths)} paths, {verdict.seconds:.1f} s"
        )
        for sentence in sorted({d.sentence for path in verdict.paths for d in path.differences}):
            print(f"    not so: {sentence}")
        for ended in sorted({f"{path.place}: {path.ended}" for path in verdict.paths if not path.understood}):
            print(f"    {ended}")
    sys.exit(exit_code(found))


if __name__ == "__main__":
    main()
