#!/usr/bin/env bash
# The whole loop on one screen. Every step says its command and checks its exit code; any other code fails the demo.
set -euo pipefail
cd "$(dirname "$0")/.."

KVPROOF=${KVPROOF:-kvproof}
OUT=${OUT:-out/demo}
FAULT=F22862b
mkdir -p "$OUT"

heading() { printf '\n## %s\n' "$1"; }

# expect CODE ARGUMENTS…: run kvproof, compare its exit code.
expect() {
  local wanted=$1 got=0
  shift
  printf '$ kvproof %s\n' "$*"
  "$KVPROOF" "$@" || got=$?
  if [[ $got -ne $wanted ]]; then
    printf 'demo: expected exit code %s, got %s\n' "$wanted" "$got" >&2
    exit 1
  fi
  printf '(exit %s, as expected)\n' "$got"
}

heading "1. The rules keep every invariant, for every page size"
expect 0 prove --quiet

heading "2. One rule broken on purpose: the freed tail starts inside a page that still holds tokens"
expect 1 prove --fault "$FAULT"

WORKLOAD=(--workload examples/mooncake_conversation_excerpt.jsonl --scale 32 --page-size 16
  --set retract_interval=8 --set retract_after_prepare=true)

heading "3. Forty requests of a production chat service, on the reference implementation, with forced retracts"
expect 0 record "${WORKLOAD[@]}" --out "$OUT/chat.jsonl"

heading "4. What it did with its pages, checked event by event"
expect 0 replay "$OUT/chat.jsonl"

heading "5. The same requests, with the broken rule in the implementation"
expect 0 record "${WORKLOAD[@]}" --fault "$FAULT" --out "$OUT/broken.jsonl"

heading "6. Replay finds the event and names the fault"
expect 1 replay "$OUT/broken.jsonl"

printf '\nAll six steps ended as they should. The traces are in %s.\n' "$OUT"
