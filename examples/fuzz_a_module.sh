#!/usr/bin/env bash
# A target of your own, my_branch.py beside this file: fuzzed until it breaks, and what is left of that is a test.
set -euo pipefail
cd "$(dirname "$0")/.."
KVPROOF=${KVPROOF:-kvproof}
PYTHON=${PYTHON:-python}
OUT=${OUT:-out/examples}
mkdir -p "$OUT"
export PYTHONPATH="examples${PYTHONPATH:+:$PYTHONPATH}"

got=0
"$KVPROOF" fuzz --target my_branch:factory --seconds 60 --stop-after 1 --step-seconds 60 --out "$OUT/fuzz" || got=$?
[[ $got -eq 1 ]] || { printf 'expected exit code 1, got %s\n' "$got" >&2; exit 1; }
cat "$OUT/fuzz/1/report.txt"

if "$PYTHON" "$OUT/fuzz/1/test_finding.py" 2>/dev/null; then
  printf 'the test of the finding passed, though the branch still does it\n' >&2
  exit 1
fi
printf '\nFound, made small, and kept as a test that fails until the branch is repaired.\n'
