"""A prompt whose prefix the tree still has, but not its window pages; for SGLang's environment.

    python drive_parted.py FOLDER

Newer releases hand the tree such a prompt only up to where it parts from the other. Captures it as a server is, and prints
how the trace ended and what is found in it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from captured import captured

from kvproof.conformance.adapters.sglang.settings import Settings
from kvproof.conformance.replay import replay

SETTINGS = Settings(pool_tokens=128, max_running_requests=8, window=1, context_length=36)
# Both begin with the same token. The last number: how many tokens the second one generates, so that it is kept or ends at once.
PROMPTS = ([20, 21, 22], [20, 31, 32])


def main() -> None:
    for generated in (3, 1):
        path = Path(sys.argv[1]) / f"{generated}.jsonl"
        with captured(SETTINGS, path) as headless:
            for name, prompt, tokens in (("first", PROMPTS[0], 3), ("second", PROMPTS[1], generated)):
                headless.send_tokens(name, prompt, tokens)
                for _ in range(12):
                    headless.step()
        result = replay(path, profile="auto")
        reason = json.loads(path.read_text().splitlines()[-1])["reason"]
        print(json.dumps({"verdict": result.verdict, "found": [one.rule for one in result.findings], "reason": reason}))


if __name__ == "__main__":
    main()
