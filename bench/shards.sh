#!/usr/bin/env bash
# Measures the cost of the same bits by default: ResNet-18 at batch 256 on one device of two cores, with 8 shards of one
# thread (the default) and with one shard of two threads, in turns. Prints images/s of the median step of each round and
# the median of the rounds' ratios. shards.sh LOCKSTEP [ROUNDS [STEPS]]. Needs two cores and a quiet machine.
set -euo pipefail
lockstep=$(realpath "$1") rounds=${2:-5} steps=${3:-4}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

speed() {  # OPTIONS...
  taskset -c 0,1 "$lockstep" train --num-devices 1 --batch-size 256 --max-steps $((steps + 2)) --limit-test 1 --log "$log" "$@" > /dev/null 2>&1
  # The first two steps allocate memory and choose algorithms.
  sed -n 's/.*"event":"step".*"samples":\([0-9]*\),"seconds":\([0-9.e-]*\)}.*/\1 \2/p' "$log" | tail -n +3 | awk '{print $1 / $2}' | sort -n |
    awk '{v[NR] = $1} END {printf "%.1f", v[int((NR + 1) / 2)]}'
}

for round in $(seq "$rounds"); do
  many=$(speed --shards 8 --threads-per-shard 1)
  one=$(speed --shards 1 --threads-per-shard 2)
  ratio=$(awk "BEGIN {printf \"%.3f\", $many / $one}")
  echo "round $round: 8 shards of 1 thread $many, 1 shard of 2 threads $one images/s, ratio $ratio" >&2
  echo "$ratio"
done | sort -n | awk '{v[NR] = $1} END {printf "median ratio %.3f, from %.3f to %.3f\n", v[int((NR + 1) / 2)], v[1], v[NR]}'
