#!/usr/bin/env bash
# Makes all measurements of docs/automatic-parallelism.md: automatic_parallelism.sh LOCKSTEP [FOLDER]. Prints text, and
# writes JSON and timelines to FOLDER. Needs a quiet machine with at least two cores.
set -euo pipefail
lockstep=$(realpath "$1") folder=${2:-automatic-parallelism}
mkdir -p "$folder"
cd "$folder"
"$lockstep" bench engine --json engine.json
"$lockstep" bench overlap --json overlap.json
for experiment in independent three-way small-ops dag; do
  "$lockstep" bench parallel --experiment $experiment --json $experiment.json
done
# Short runs for pictures.
"$lockstep" bench overlap --size 1024 --count 6 --rounds 1 --trace overlap-trace.json > /dev/null
"$lockstep" bench parallel --size 1024 --count 6 --rounds 1 --trace independent-trace.json > /dev/null
