#!/usr/bin/env bash
# Runs every check that needs a GPU, the most important first: tests, losses beside the CPU's, speed beside PyTorch's,
# overlap, bits on logical devices, then details of the speed, and memory checkers. Continues after a failure. Each step
# has a time limit, and steps beyond $BUDGET seconds in total (560) are skipped. summary.txt ends with the number of
# failures.
#
#   tests/gpu/run_all.sh DATA [BUNDLE]
#
# DATA: the folder of Fashion-MNIST. BUNDLE: a file made by bundle.sh; without it, everything is built here before the
# clock starts, which needs nvcc and the packages of scripts/packages.txt. $OUT (or gpu-results/) gets two files,
# updated after every step: summary.txt and logs.tar.gz. PyTorch is skipped if python3 lacks it. SMALL=1 checks that the
# steps work, not their speed; use it in the emulation, with a bundle of its build and a BUDGET of 3000.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
data=$(realpath "$1")
export MODEL=resnet18  # for ranks.sh, too
batch=256 speeds=(256 1024) steps=20 epochs=(--epochs 10 --schedule cosine) least_accuracy=0.92 products=(--size 4000 --count 20)
mixed=1024 graph=384 functions=60 slow=
if [ -n "${SMALL:-}" ]; then
  MODEL=mlp batch=32 speeds=(32 64) steps=2 epochs=(--epochs 2 --limit-train 320 --limit-test 100) least_accuracy=0
  products=(--size 32 --count 5) mixed=16 graph=16 functions=400
  slow='-LockstepResnet18*:*Lockstep.*/Lenet?*:*Lockstep.*/Residual*:LockstepRecipe*'
fi
bundle=${2:+$(realpath "$2")}
mkdir -p "${OUT:=$PWD/gpu-results}"
out=$(realpath "$OUT")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
logs=$work/logs bin=$work/bin
mkdir "$logs" "$bin"
: > "$out/summary.txt"

if [ -n "$bundle" ]; then
  python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$bundle" "$work/bundle"
  programs=("$work"/bundle/bin/*)
else
  { cmake --preset release -DLOCKSTEP_CUDA=ON -DLOCKSTEP_CUDA_ARCHITECTURES=native &&
    ninja -C build lockstep gpu_test gpu_devices_test gpu_bandwidth automatic_parallelism; } > "$logs/build.txt" 2>&1 ||
    { tail -20 "$logs/build.txt"; exit 1; }
  programs=(build/apps/lockstep/lockstep{,-bench} build/tests/gpu/gpu_test build/tests/gpu/gpu_devices_test
    build/tests/gpu/bandwidth/gpu_bandwidth build/examples/automatic_parallelism)
fi
SECONDS=0

# CUDA's libraries, from Python's wheels or the system. For our programs only, because Python finds its own.
wheels=$(python3 -c 'import os, sys
for p in sys.path:
    n = os.path.join(p, "nvidia")
    if os.path.isdir(n):
        print(":".join(os.path.join(n, d, "lib") for d in sorted(os.listdir(n)) if os.path.isdir(os.path.join(n, d, "lib"))))
        break' 2> /dev/null || true)
libraries=$work/bundle/lib:${wheels:+$wheels:}/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
for program in "${programs[@]}"; do
  printf '#!/bin/sh\nexport LD_LIBRARY_PATH="%s"\nexec "%s" "$@"\n' "$libraries" "$(realpath "$program")" > "$bin/${program##*/}"
  chmod +x "$bin/${program##*/}"
done
PATH=$PATH:/usr/local/cuda/bin
lockstep=$bin/lockstep

# step NAME SECONDS COMMAND...: writes its log to NAME.txt and its result to a line of the summary.
failures=0
step() {
  local name=$1 limit=$2 begin=$SECONDS left=$((${BUDGET:-560} - SECONDS)) how=ok status
  shift 2
  if ((left < 10)); then
    how='left out: no time'
  else
    timeout -k 5 $((limit < left ? limit : left)) "$@" > "$logs/$name.txt" 2>&1
    status=$?
    [ $status -eq 124 ] && how="FAILED: longer than $((limit < left ? limit : left)) s"
    [ $status -eq 0 ] || [ $status -eq 124 ] || how="FAILED ($status)"
    [ $status -eq 0 ] || failures=$((failures + 1))
  fi
  printf '%-32s %s  %d s\n' "$name" "$how" $((SECONDS - begin)) | tee -a "$out/summary.txt"
  if [[ $how == FAILED* ]]; then tail -12 "$logs/$name.txt" | cut -c1-200; fi
  tar -czf "$out/logs.new" -C "$work" logs && mv "$out/logs.new" "$out/logs.tar.gz"
}

{
  nvidia-smi
  LD_LIBRARY_PATH=$libraries ldd "$(realpath "${programs[0]}")"
} > "$logs/machine.txt" 2>&1
step devices 30 "$lockstep" devices
# One process per suite, because an illegal access by a kernel makes the GPU unusable for its process.
suites() { "$bin/$1" --gtest_list_tests 2> /dev/null | sed -n 's/^\([^ ]*\)\.\( .*\)\?$/\1/p'; }
for suite in $(suites gpu_test); do
  step "kernels_${suite##*/}" 90 "$bin/gpu_test" --gtest_filter="$suite.*"
done
for suite in $(suites gpu_devices_test | grep -v 'FunctionsTest\|Lockstep'); do
  step "devices_${suite##*/}" 90 "$bin/gpu_devices_test" --gtest_filter="$suite.*$slow"
done

# Losses beside the CPU's.
recipe=(train --model "$MODEL" --data "$data" --batch-size 64 --shards 2 --no-shuffle --lr 0.001 --limit-test 1)
step losses_gpu 40 "$lockstep" "${recipe[@]}" --max-steps 12 --devices cuda:0 --log "$logs/losses_gpu.jsonl"
step losses_cpu 60 "$lockstep" "${recipe[@]}" --max-steps 12 --devices cpu:0 --log "$logs/losses_cpu.jsonl"
step losses 10 python3 - "$logs/losses_cpu.jsonl" "$logs/losses_gpu.jsonl" <<'PY'
import json, sys
cpu, gpu = ([json.loads(l)["loss"] for l in open(f) if '"step"' in l and '"loss"' in l] for f in sys.argv[1:])
worst = max(abs(a - b) / abs(a) for a, b in zip(cpu, gpu))
print(f"{len(cpu)} and {len(gpu)} steps, largest relative distance {worst:.2e}")
sys.exit(not (len(cpu) == len(gpu) == 12 and worst < 1e-3))
PY

# Recorded steps (CUDA graphs) and described steps: the same bits, and no notice that a graph was impossible.
step recorded 60 bash -c '
  set -e
  for option in "" --record-steps; do
    "$0" train --model "$3" --data "$1" --dtype bf16 --batch-size "$4" --max-steps 10 --limit-test 1 --devices cuda:0 \
      $option --log "$2/recorded.jsonl" 2>&1 > /dev/null | tee -a "$2/recorded.notices"
    echo "described $option $(grep -o "weights_sha256[^,}]*" "$2/recorded.jsonl" | tail -1)"
  done | tee "$2/recorded.list"
  [ "$(grep -o "weights_sha256.*" "$2/recorded.list" | sort -u | wc -l)" = 1 ] && [ ! -s "$2/recorded.notices" ]' \
  "$lockstep" "$data" "$logs" "$MODEL" "$batch"

# Speed with the libraries' suggested algorithms.
bench=("$lockstep" bench train --model "$MODEL" --data "$data" --dtype bf16 --devices cuda:0 --steps "$steps")
for size in "${speeds[@]}"; do
  step "speed_$size" 60 "${bench[@]}" --batch-size "$size" --trace "$logs/timeline_$size.json"
  step "speed_${size}_recorded" 60 "${bench[@]}" --batch-size "$size" --record-steps \
    --trace "$logs/timeline_${size}_recorded.json"
done
if python3 -c 'import torch; assert torch.cuda.is_available()' 2> /dev/null; then
  step pytorch 180 bench/compare_pytorch_gpu.sh "$lockstep" "$data"
fi
# Products and copies of their results to the host, to pinned and to pageable memory; two logical devices; a GPU, a CPU,
# and the link between them; a random graph.
step overlap 40 "$lockstep" bench overlap --rounds 3 --devices cuda:0 "${products[@]}" --copies 1 \
  --trace "$logs/timeline_overlap.json"
parallel=("$lockstep" bench parallel --rounds 3)
step parallel 30 "${parallel[@]}" --devices cuda:0/0,cuda:0/1 "${products[@]}"
step three_way 30 "${parallel[@]}" --experiment three-way --devices cpu:0,cuda:0 --size "$mixed" --count 16 --copies 1
step dag 30 "${parallel[@]}" --experiment dag --devices cuda:0/0,cuda:0/1 --size "$graph"
step example 30 "$bin/automatic_parallelism" --devices cuda:0/0,cuda:0/1 "${products[@]}"

# The same recipe on 1, 2, and 4 logical devices, and once more: the same bits.
step bits 90 bash -c '
  set -e
  for devices in cuda:0 cuda:0/0,cuda:0/1 cuda:0/0,cuda:0/1,cuda:0/2,cuda:0/3 cuda:0; do
    "$0" train --model "$MODEL" --data "$1" --dtype bf16 --batch-size "$3" --shards 4 --max-steps 10 --limit-test 1 \
      --devices $devices --log "$2/bits.jsonl" > /dev/null
    echo "$devices $(grep -o "weights_sha256[^,}]*" "$2/bits.jsonl" | tail -1)"
  done | tee "$2/bits.list"
  [ "$(cut -d" " -f2 "$2/bits.list" | sort -u | wc -l)" = 1 ]' "$lockstep" "$data" "$logs" "$batch"
for suite in $(suites gpu_devices_test | grep Lockstep); do
  step "devices_${suite##*/}" 90 "$bin/gpu_devices_test" --gtest_filter="$suite.*$slow"
done

# Ten epochs, with the seconds of each.
step epochs 90 bash -c '
  "$0" train --model "$MODEL" --data "$1" --dtype bf16 --batch-size "$3" --devices cuda:0 --record-steps --log "$2/epochs.jsonl" "${@:5}" &&
    tail -1 "$2/epochs.jsonl" | python3 -c "import json, sys
sys.exit(json.loads(sys.stdin.read())[\"test_acc\"] < $4)"' "$lockstep" "$data" "$logs" "$batch" "$least_accuracy" "${epochs[@]}"

# NCCL between two ranks, on one GPU if there is no other.
step ranks 120 tests/gpu/ranks.sh "$lockstep" "$data" "$logs"

# With algorithms chosen by timing.
for size in "${speeds[@]}"; do
  step "speed_${size}_timed" 60 env LOCKSTEP_CUDA_ALGORITHMS="$logs/algorithms.txt" "${bench[@]}" --batch-size "$size"
done
step functions "$functions" "$bin/gpu_devices_test" --gtest_filter='*FunctionsTest*'
[ -x "$bin/gpu_bandwidth" ] && step bandwidth 30 "$bin/gpu_bandwidth"
if command -v compute-sanitizer > /dev/null; then
  check=(env LD_LIBRARY_PATH="$libraries" compute-sanitizer --error-exitcode 9)
  gpu_test=$(for program in "${programs[@]}"; do [ "${program##*/}" = gpu_test ] && realpath "$program"; done)
  step memcheck 60 "${check[@]}" "$gpu_test" --gtest_filter='*ConvTest.LayersOfNetworks*bf16:*MatmulTest*bf16:*ReduceTest*f32'
  step racecheck 60 "${check[@]}" --tool racecheck "$gpu_test" --gtest_filter='*ReduceTest*f32:*NormTest.Stats*:*NormTest.Backward*bf16'
fi

echo "$failures failures, $SECONDS s; $out has summary.txt and logs.tar.gz" | tee -a "$out/summary.txt"
for log in losses recorded speed_256 speed_256_recorded speed_1024 speed_1024_recorded pytorch overlap parallel three_way dag \
  example bits epochs ranks speed_256_timed speed_1024_timed; do
  [ -f "$logs/$log.txt" ] && { echo "== $log"; tail -12 "$logs/$log.txt" | cut -c1-160; }
done
exit $((failures > 0))
