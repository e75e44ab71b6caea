"""Asks pip-audit about pinned packages: 0 nothing is known against them, 1 something is, 3 the service does not know of all.

python tools/audit.py REQUIREMENTS
"""

from __future__ import annotations

import json
import subprocess
import sys

NO_VERDICT = 3


def main() -> int:
    command = [sys.executable, "-m", "pip_audit", "--requirement", sys.argv[1], "--no-deps", "--disable-pip"]
    done = subprocess.run([*command, "--format", "json", "--progress-spinner", "off"], capture_output=True, text=True)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        why = (done.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1]
        print(f"no verdict: {why[:300]}", file=sys.stderr)
        return NO_VERDICT
    bad = [(p["name"], p["version"], v["id"], v["fix_versions"]) for p in packages for v in p.get("vulns", ())]
    for name, version, known, fixed in bad:
        print(f"{name} {version}: {known}, fixed in {', '.join(fixed) or 'no release yet'}")
    left_out = [p["name"] for p in packages if "skip_reason" in p]
    print(f"{len(packages) - len(left_out)} of {len(packages)} packages looked at, {len(bad)} known vulnerabilities")
    if left_out:
        print(f"no verdict on: {', '.join(left_out)}", file=sys.stderr)
    return 1 if bad else NO_VERDICT if left_out else 0


if __name__ == "__main__":
    sys.exit(main())
