#!/usr/bin/env bash
# Compares training steps with PyTorch's, in turns on the same cores: images/s, the median of a run's steps.
# compare_pytorch.sh LOCKSTEP PEER [ROUNDS [SMALL_PEER]]: the tool; a script that trains ResNet-18, takes --threads
# --batch --bf16 --cl, and prints "...: N img/s"; a script that trains an MLP (batch 128) and LeNet (batch 256), takes
# --threads, and prints "mlp: N img/s" and "lenet: N img/s". Needs python3-torch and a quiet machine.
set -euo pipefail
lockstep=$1 peer=$2 rounds=${3:-3} small_peer=${4:-}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Prints the median images/s of the steps after the first two. Reads the log with sed and awk to need no other tool.
steps=8
ours() {  # CPUS BATCH OPTIONS...
  local cpus=$1 batch=$2 shards=1
  shift 2
  [[ $cpus == *,* ]] && shards=2  # one for each core
  taskset -c "$cpus" "$lockstep" train --batch-size "$batch" --max-steps "$steps" --limit-test 1 --shards "$shards" --threads-per-shard 1 \
    --log "$log" "$@" > /dev/null
  sed -n 's/.*"event":"step".*"samples":\([0-9]*\),"seconds":\([0-9.e-]*\)}.*/\1 \2/p' "$log" | tail -n +3 | awk '{print $1 / $2}' | sort -n |
    awk '{v[NR] = $1} END {printf "%.1f", v[int((NR + 1) / 2)]}'
}
theirs() {  # CPUS OPTIONS...
  local cpus=$1
  shift
  taskset -c "$cpus" /usr/bin/python3 "$peer" "$@" 2>/dev/null | sed -n 's/.*: \([0-9.]*\) img\/s.*/\1/p'
}

for round in $(seq "$rounds"); do
  echo "round $round: lockstep / PyTorch, images/s"
  echo "  f32,  1 core:  $(ours 0 64) / $(theirs 0 --threads 1) (channels-last $(theirs 0 --threads 1 --cl))"
  echo "  bf16, 1 core:  $(ours 0 64 --dtype bf16) / $(theirs 0 --threads 1 --bf16) (channels-last $(theirs 0 --threads 1 --bf16 --cl))"
  echo "  f32,  2 cores: $(ours 0,1 128 --num-devices 2) / $(theirs 0,1 --threads 2 --batch 128) (channels-last $(theirs 0,1 --threads 2 --batch 128 --cl))"
  echo "  bf16, 2 cores: $(ours 0,1 128 --num-devices 2 --dtype bf16) / $(theirs 0,1 --threads 2 --batch 128 --bf16) (channels-last $(theirs 0,1 --threads 2 --batch 128 --bf16 --cl))"
  echo "  scaling, f32:  $(ours 0 256) on one core at 256, $(ours 0,1 512 --num-devices 2) on two at 512"
  echo "  scaling, bf16: $(ours 0 256 --dtype bf16) on one core at 256, $(ours 0,1 512 --num-devices 2 --dtype bf16) on two at 512"
  [ -n "$small_peer" ] || continue
  small=$(taskset -c 0 /usr/bin/python3 "$small_peer" --threads 1 2>/dev/null)
  for net in mlp:128 lenet:256; do
    model=${net%:*} batch=${net#*:}
    echo "  f32,  1 core, $model, batch $batch: $(steps=120 && ours 0 "$batch" --model "$model") / $(sed -n "s/^$model: \([0-9.]*\) img.*/\1/p" <<< "$small")"
  done
done
