#!/usr/bin/env bash
# Measures how training scales over two cores: one device, two devices, and two processes, with one shard for each, in
# turns. Prints images/s of the fastest and the median step over all rounds. scaling.sh LOCKSTEP [ROUNDS [STEPS]]. Needs
# two cores and a quiet machine.
#
# A virtual core can be preempted by the host, and no counter of the guest shows it. So a loop that needs only its core
# runs first and shows how often. The fastest steps are those of an undisturbed machine.
set -euo pipefail
lockstep=$(realpath "$1") rounds=${2:-5} steps=${3:-8}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# Prints the times of a fixed loop.
taskset -c 0 awk 'BEGIN {
  for (i = 0; i < 60; ++i) { "date +%s%N" | getline a; close("date +%s%N"); for (j = 0; j < 2000000; ++j) x += j
    "date +%s%N" | getline b; close("date +%s%N"); print (b - a) / 1e6 } }' | sort -n |
  awk '{v[NR] = $1} END {printf "a bare loop on one core: %.0f ms at best, %.0f in the median, %.0f at the 90th percentile\n",
                                v[1], v[int((NR + 1) / 2)], v[int(NR * 0.9)]}'

run() {  # NAME CPUS [launch N] OPTIONS...
  local name=$1 cpus=$2
  shift 2
  local command=("$lockstep" train)
  if [[ $1 == launch ]]; then
    command=("$lockstep" launch --nproc-per-node "$2" -- "$lockstep" train)
    shift 2
  fi
  taskset -c "$cpus" "${command[@]}" --threads-per-shard 1 --limit-test 1 --log "$logs/log" "$@" > /dev/null
  # The first two steps allocate memory and choose algorithms.
  sed -n 's/.*"event":"step".*"samples":\([0-9]*\),"seconds":\([0-9.e-]*\)}.*/\1 \2/p' "$logs/log" | tail -n +3 | awk '{print $1 / $2}' >> "$logs/$name"
}
row() {  # NAME TITLE
  sort -n "$logs/$1" | awk -v title="$2" '{v[NR] = $1} END {printf "  %-34s %9.1f %9.1f\n", title, v[NR], v[int((NR + 1) / 2)]}'
}
ratio() {  # NAME OF
  paste <(sort -n "$logs/$1") <(sort -n "$logs/$2") |
    awk '{a[NR] = $1; b[NR] = $2} END {printf "  %-34s %9.2f %9.2f\n", "ratio", a[NR] / b[NR], a[int((NR + 1) / 2)] / b[int((NR + 1) / 2)]}'
}

for dtype in f32 bf16; do
  for round in $(seq "$rounds"); do
    options=(--model resnet18 --dtype "$dtype" --max-steps $((steps + 2)))
    run "$dtype.one" 0 "${options[@]}" --batch-size 256 --num-devices 1 --shards 1
    run "$dtype.devices" 0,1 "${options[@]}" --batch-size 512 --num-devices 2 --shards 2
    run "$dtype.processes" 0,1 launch 2 "${options[@]}" --batch-size 512 --num-devices 1 --shards 2
  done
  echo "resnet18, $dtype, images/s of the     fastest    median step"
  row "$dtype.one" "one device of one core, batch 256"
  row "$dtype.devices" "two devices, batch 512"
  ratio "$dtype.devices" "$dtype.one"
  row "$dtype.processes" "two processes, batch 512"
  ratio "$dtype.processes" "$dtype.one"
done
for round in $(seq "$rounds"); do
  options=(--model mlp --max-steps 1000)
  run mlp.one 0 "${options[@]}" --batch-size 128 --num-devices 1 --shards 1
  run mlp.processes 0,1 launch 2 "${options[@]}" --batch-size 256 --num-devices 1 --shards 2
done
# The host runs two steps ahead, so reports of single steps come in bursts, and only their mean is useful.
echo "mlp, f32: ms for each step, mean"
for name in one processes; do
  images=$([[ $name == one ]] && echo 128 || echo 256)
  awk -v title="$name" -v n="$images" '{sum += 1000 * n / $1} END {printf "  %-34s %9.3f\n", title, sum / NR}' "$logs/mlp.$name"
done
