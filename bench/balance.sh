#!/usr/bin/env bash
# Measures shares by speed on two devices of one core each; a busy process slows the second device. Each round prints
# the images/s of each device alone and of both with equal shares and with --balance auto, and the ratio of the last two
# to the sum of the separate speeds. Then a device is slowed in the middle of a run; this prints the step at which it
# was slowed and the steps at which shares changed. All runs must end with the same weights. balance.sh LOCKSTEP [ROUNDS
# [MODEL [BATCH [SHARDS]]]]. Needs two cores and a quiet machine.
set -euo pipefail
lockstep=$(realpath "$1") rounds=${2:-3} model=${3:-resnet18} batch=${4:-128} shards=${5:-16}
logs=$(mktemp -d)
burner=
trap 'stop_burner; rm -rf "$logs"' EXIT

start_burner() {
  taskset -c 1 sh -c 'while :; do :; done' &
  burner=$!
}
stop_burner() {
  if [[ $burner ]]; then
    kill "$burner" && wait "$burner" || true
    burner=
  fi
} 2> /dev/null

tool() {  # NAME STEPS OPTIONS...
  local name=$1 steps=$2
  shift 2
  echo taskset -c 0,1 "$lockstep" train --model "$model" --batch-size "$batch" --shards "$shards" --threads-per-shard 1 \
    --cores-per-device 1 --limit-test 1 --epochs 1000 --max-steps "$steps" --log "$logs/$name" "$@"
}
# Prints images per second of the median step from step $2 to the end.
speed() {
  sed -n 's/.*"event":"step","step":\([0-9]*\),.*"samples":\([0-9]*\),"seconds":\([0-9.e-]*\)}.*/\1 \2 \3/p' "$logs/$1" |
    awk -v first="$2" '$1 >= first {print $2 / $3}' | sort -n | awk '{v[NR] = $1} END {printf "%.1f", v[int((NR + 1) / 2)]}'
}
hash_of() { sed -n 's/.*"event":"end".*"weights_sha256":"\([0-9a-f]*\)".*/\1/p' "$logs/$1"; }
# Prints the shares at each step where they change: "step 21: 11,5".
changes() {
  sed -n 's/.*"event":"step","step":\([0-9]*\),.*"shares":\[\([0-9,]*\)\].*/\1 \2/p' "$logs/$1" |
    awk '$2 != last {printf "%s step %d: %s", last == "" ? "" : ",", $1, $2; last = $2}'
}

lscpu | sed -n 's/^Model name: *//p'
echo "$model, batch $batch, $shards shards; cpu:1 shares its core with a busy process"
# By step 41 the shares have settled.
warm=42 steps=60
for round in $(seq "$rounds"); do
  start_burner
  $(tool fast 12 --devices cpu:0) > /dev/null 2> "$logs/errors"
  $(tool slow 12 --devices cpu:1) > /dev/null 2> "$logs/errors"
  $(tool equal $steps --num-devices 2) > /dev/null 2> "$logs/errors"
  $(tool auto $steps --num-devices 2 --balance auto) > /dev/null 2> "$logs/errors"
  stop_burner
  fast=$(speed fast 3) slow=$(speed slow 3) equal=$(speed equal $warm) auto=$(speed auto $warm)
  awk -v r="$round" -v f="$fast" -v s="$slow" -v e="$equal" -v a="$auto" 'BEGIN {
    printf "round %d: fast %.1f, slow %.1f, together %.1f; equal shares %.1f (%.2f), by speed %.1f (%.2f)\n",
           r, f, s, f + s, e, e / (f + s), a, a / (f + s) }'
  echo "  shares:$(changes auto)"
  [[ $(hash_of equal) == "$(hash_of auto)" ]] && echo "  equal weights: $(hash_of auto)" || { echo "  DIFFERENT WEIGHTS"; exit 1; }
done

echo "slowed in the middle:"
$(tool middle 90 --num-devices 2 --balance auto) > /dev/null 2> "$logs/errors" &
train=$!
until [[ -s $logs/middle ]] && (( $(grep -c '"event":"step"' "$logs/middle") >= 30 )); do sleep 0.05; done
start_burner
slowed=$(grep -c '"event":"step"' "$logs/middle")
wait "$train"
stop_burner
$(tool quiet 90 --num-devices 2) > /dev/null 2> "$logs/errors"
echo "  slowed at step $slowed; shares:$(changes middle)"
[[ $(hash_of quiet) == "$(hash_of middle)" ]] && echo "  equal weights: $(hash_of middle)" || { echo "  DIFFERENT WEIGHTS"; exit 1; }
