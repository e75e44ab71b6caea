#!/usr/bin/env bash
# What does an implementation do with its pages, and does that follow the rules? Once right, once with a bug that a release had.
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

expect 0 record --scenario retract --page-size 4 --out "$OUT/good.jsonl"
expect 0 replay "$OUT/good.jsonl"
expect 0 record --scenario retract --page-size 4 --fault F22862b --out "$OUT/bad.jsonl"
expect 1 replay "$OUT/bad.jsonl"
expect 0 shrink "$OUT/bad.jsonl" --out "$OUT/small.jsonl"
expect 1 replay "$OUT/small.jsonl"
printf '\nThe right run conforms; the bug is named, and shown by a few events.\n'
