#!/usr/bin/env bash
# Everything that has to be seen on a GPU, in one go: tests, memory checker, losses beside the CPU's, bits on logical devices,
# speed beside PyTorch's. Under ten minutes; goes on after a failure, and ends with a summary and the number of failures.
#
#   tests/gpu/run_all.sh DATA [BUNDLE]
#
# DATA: the folder of Fashion-MNIST. BUNDLE: a file made by bundle.sh; without it everything is built here, which needs nvcc and the
# packages of scripts/packages.txt. Logs go to $OUT, or to gpu-results/. PyTorch is left out where python3 has none.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
data=$(realpath "$1")
bundle=${2:-}
out=${OUT:-$PWD/gpu-results}
mkdir -p "$out"
out=$(realpath "$out")
: > "$out/summary.txt"
start=$SECONDS

# step NAME SECONDS COMMAND...: its log is NAME.txt; a line of the summary tells how it went.
failures=0
step() {
  local name=$1 limit=$2 begin=$SECONDS status
  shift 2
  timeout "$limit" "$@" > "$out/$name.txt" 2>&1
  status=$?
  [ "$status" -eq 0 ] || failures=$((failures + 1))
  printf '%-28s %s  %d s\n' "$name" "$([ "$status" -eq 0 ] && echo ok || echo "FAILED ($status)")" $((SECONDS - begin)) |
    tee -a "$out/summary.txt"
}

# CUDA's libraries: those of the system, or of Python's wheels.
wheels=$(python3 -c 'import os, sys
for p in sys.path:
    n = os.path.join(p, "nvidia")
    if os.path.isdir(n):
        print(":".join(os.path.join(n, d, "lib") for d in os.listdir(n) if os.path.isdir(os.path.join(n, d, "lib"))))
        break' 2> /dev/null || true)
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}${LD_LIBRARY_PATH:+:}/usr/local/cuda/lib64${wheels:+:$wheels}"

if [ -n "$bundle" ]; then
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$bundle" "$folder"
  bin=$folder/bin
  export LD_LIBRARY_PATH="$folder/lib:$LD_LIBRARY_PATH"
else
  step build 420 bash -c 'cmake --preset release -DLOCKSTEP_CUDA=ON -DLOCKSTEP_CUDA_ARCHITECTURES=native &&
    ninja -C build lockstep gpu_test gpu_devices_test automatic_parallelism'
  bin=$out/bin
  mkdir -p "$bin"
  ln -sf "$PWD"/build/apps/lockstep/lockstep "$PWD"/build/tests/gpu/gpu_test "$PWD"/build/tests/gpu/gpu_devices_test \
    "$PWD"/build/examples/automatic_parallelism "$bin"
fi
lockstep=$bin/lockstep

{
  nvidia-smi
  ldd "$lockstep"
} > "$out/machine.txt" 2>&1
step devices 60 "$lockstep" devices
step kernels 120 "$bin/gpu_test"
step devices_test 120 "$bin/gpu_devices_test" --gtest_filter='-*FunctionsTest*'
if command -v compute-sanitizer > /dev/null; then
  step memcheck 60 compute-sanitizer --error-exitcode 9 "$bin/gpu_test" \
    --gtest_filter='*ConvTest.LayersOfNetworks*bf16:*MatmulTest*bf16:*ReduceTest*f32'
  step racecheck 60 compute-sanitizer --tool racecheck --error-exitcode 9 "$bin/gpu_test" --gtest_filter='*ReduceTest*f32'
fi

# Losses of ResNet-18 beside the CPU's.
recipe=(train --model resnet18 --data "$data" --batch-size 64 --shards 2 --no-shuffle --lr 0.001 --limit-test 1)
step losses_cpu 90 "$lockstep" "${recipe[@]}" --max-steps 12 --devices cpu:0 --log "$out/losses_cpu.jsonl"
step losses_gpu 60 "$lockstep" "${recipe[@]}" --max-steps 12 --devices cuda:0 --log "$out/losses_gpu.jsonl"
step losses 10 python3 - "$out/losses_cpu.jsonl" "$out/losses_gpu.jsonl" <<'PY'
import json, sys
cpu, gpu = ([json.loads(l)["loss"] for l in open(f) if '"step"' in l and '"loss"' in l] for f in sys.argv[1:])
worst = max(abs(a - b) / abs(a) for a, b in zip(cpu, gpu))
print(f"{len(cpu)} and {len(gpu)} steps, largest relative distance {worst:.2e}")
sys.exit(not (len(cpu) == len(gpu) == 12 and worst < 1e-3))
PY

# The same recipe on 1, 2 and 4 logical devices, and again: the same bits.
step bits 120 bash -c '
  set -e
  for devices in cuda:0 cuda:0/0,cuda:0/1 cuda:0/0,cuda:0/1,cuda:0/2,cuda:0/3 cuda:0; do
    "$0" train --model resnet18 --data "$1" --dtype bf16 --batch-size 256 --shards 4 --max-steps 10 --limit-test 1 \
      --devices $devices --log "$2/bits.jsonl" > /dev/null
    echo "$devices $(grep -o "weights_sha256[^,}]*" "$2/bits.jsonl" | tail -1)"
  done | tee "$2/bits.list"
  [ "$(cut -d" " -f2 "$2/bits.list" | sort -u | wc -l)" = 1 ]' "$lockstep" "$data" "$out"

# Speed: as the libraries suggest, and with algorithms chosen by timing.
for batch in 256 1024; do
  step "speed_$batch" 60 "$lockstep" bench train --model resnet18 --data "$data" --dtype bf16 --batch-size $batch \
    --devices cuda:0 --steps 20 --trace "$out/timeline_$batch.json"
  step "speed_${batch}_timed" 60 env LOCKSTEP_CUDA_ALGORITHMS="$out/algorithms.txt" "$lockstep" bench train --model resnet18 \
    --data "$data" --dtype bf16 --batch-size $batch --devices cuda:0 --steps 20
done
step overlap 60 "$bin/automatic_parallelism" --devices cuda:0/0,cuda:0/1 --size 4000 --count 10
if python3 -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null; then
  step pytorch 180 bench/compare_pytorch_gpu.sh "$lockstep" "$data"
fi

echo "$failures failures, $((SECONDS - start)) s; logs in $out" | tee -a "$out/summary.txt"
for log in speed_256 speed_1024 speed_256_timed speed_1024_timed bits pytorch; do
  [ -f "$out/$log.txt" ] && { echo "== $log"; head -30 "$out/$log.txt"; }
done
exit $((failures > 0))
