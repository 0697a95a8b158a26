#!/usr/bin/env bash
# Compares the time of a prediction for one image with PyTorch's, in turns on the same cores, and prints the table of
# docs/benchmarks.md.
# compare_latency.sh LOCKSTEP [ROUNDS]: needs python3-torch and a quiet machine. PyTorch computes an operation on one
# thread and on all cores; the better median counts.
set -euo pipefail
lockstep=$1 rounds=${2:-5}
here=$(dirname "$0")
cores=$(nproc)
processor=$(lscpu | sed -n 's/^Model name: *//p')
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT

ours() {  # MODEL: "MODEL THREADS MEDIAN P99", as the peer prints it
  "$lockstep" bench latency --model "$1" --rounds 1 | awk -v m="$1" '$1 ~ /^[14]$/ && NF == 4 {print m, $1, $2, $3}'
}
for round in $(seq "$rounds"); do
  for model in mlp resnet18; do
    ours "$model" >> "$results/ours"
    for threads in 1 "$cores"; do
      /usr/bin/python3 "$here/latency_pytorch.py" --model "$model" --rounds 1 --threads "$threads" >> "$results/theirs$threads"
    done
  done
done

# Prints the median of a column over the rounds.
middle() {  # FILE MODEL CALLERS COLUMN
  awk -v m="$2" -v t="$3" -v c="$4" '$1 == m && $2 == t {print $c}' "$results/$1" | sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'
}
echo "$processor, $cores cores; medians of $rounds rounds"
echo
echo "| net | calling threads | Lockstep, ms: median, 99 % | PyTorch, ms: median, 99 % | ratio: median, 99 % |"
echo "|---|---|---|---|---|"
for model in mlp resnet18; do
  for callers in 1 4; do
    best=1
    if [ "$cores" != 1 ] && awk "BEGIN {exit !($(middle "theirs$cores" $model $callers 3) < $(middle theirs1 $model $callers 3))}"; then best=$cores; fi
    awk -v model="$model" -v callers="$callers" -v a="$(middle ours $model $callers 3)" -v b="$(middle ours $model $callers 4)" \
      -v c="$(middle "theirs$best" $model $callers 3)" -v d="$(middle "theirs$best" $model $callers 4)" \
      'BEGIN {printf "| %s | %s | %.3g, %.3g | %.3g, %.3g | %.2f, %.2f |\n", model, callers, a, b, c, d, c / a, d / b}'
  done
done
