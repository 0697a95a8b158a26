#!/usr/bin/env bash
# Compares a training loop in Python on one core with the same training in C++ (the tool) and with PyTorch, in turns:
# images/s. ResNet-18 at batch 64, MLP at batch 128. compare_python.sh BUILD [ROUNDS]: the build folder. Needs the
# Python package in it, python3-torch, python3-numpy, libopenblas0-pthread, and a quiet machine.
set -euo pipefail
build=$1 rounds=${2:-5}
here=$(dirname "$0")
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
export LOCKSTEP_DEVICES=1 OMP_NUM_THREADS=1

# Divides the samples of all steps after the first ones by their seconds.
tool() {  # MODEL BATCH STEPS WARM-UP
  taskset -c 0 "$build/apps/lockstep/lockstep" train --model "$1" --batch-size "$2" --max-steps "$3" --limit-test 1 \
    --shards 1 --threads-per-shard 1 --log "$results/log" > /dev/null 2>&1
  sed -n 's/.*"event":"step".*"samples":\([0-9]*\),"seconds":\([0-9.e-]*\)}.*/\1 \2/p' "$results/log" |
    tail -n "+$(($4 + 1))" | awk '{n += $1; s += $2} END {printf "%.1f\n", n / s}'
}
loop() { PYTHONPATH=$build/python taskset -c 0 /usr/bin/python3 "$here/python_loops.py" "$@"; }
median() { sort -n "$1" | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

for round in $(seq "$rounds"); do
  tool resnet18 64 24 4 >> "$results/resnet18.tool"
  tool mlp 128 2340 400 >> "$results/mlp.tool"
  for model in resnet18 mlp; do
    loop $model --rounds 4 >> "$results/$model.python"
    loop $model --rounds 4 --torch >> "$results/$model.torch"
  done
done
for model in resnet18 mlp; do
  for side in tool python torch; do
    echo "$model $side: $(median "$results/$model.$side") ($(sort -n "$results/$model.$side" | tr '\n' ' '))"
  done
done
