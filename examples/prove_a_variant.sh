#!/usr/bin/env bash
# Is a changed rule safe? Two designs of a real fix (sglang #22862): the first is refuted with its shortest run, the second proved.
set -euo pipefail
cd "$(dirname "$0")/.."
KVPROOF=${KVPROOF:-kvproof}
OUT=${OUT:-out/examples}
mkdir -p "$OUT"

# expect CODE ARGUMENTS…: run kvproof, compare its exit code.
expect() {
  local wanted=$1 got=0
  shift
  printf '\n$ kvproof %s\n' "$*"
  "$KVPROOF" "$@" || got=$?
  [[ $got -eq $wanted ]] || { printf 'expected exit code %s, got %s\n' "$wanted" "$got" >&2; exit 1; }
}

expect 1 prove --variant examples/variants/sglang_22862_old_design.py --out "$OUT/counterexample.jsonl"
# The run as a trace: an implementation with the right rule diverges at its last step.
expect 1 drive "$OUT/counterexample.jsonl"
expect 0 prove --variant examples/variants/sglang_22862_new_design.py
printf '\nThe first design is refuted, the second one proved.\n'
