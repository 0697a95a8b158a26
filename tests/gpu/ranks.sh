#!/usr/bin/env bash
# NCCL between two ranks: the bits are those of one process and of sums in host memory, and a killed rank ends the other
# one. If there is only one GPU, both ranks use GPU 0; NCCL must then take them for ranks of two hosts, and uses
# sockets. MODEL=mlp is for the emulation, where other models take long.
#
#   tests/gpu/ranks.sh LOCKSTEP DATA OUT
set -euo pipefail
lockstep=$1 data=$2 out=$3
GPUS=$(nvidia-smi -L 2> /dev/null | grep -c '^GPU' || true)
export GPUS LOCKSTEP_NCCL_SHARE_GPU=1 NCCL_IB_DISABLE=1 NCCL_DEBUG=WARN

# ranks TIMEOUT TRAIN-OPTIONS...
ranks() {
  local timeout=$1
  shift
  "$lockstep" launch --nproc-per-node 2 --timeout "$timeout" -- bash -c '
    gpu=$RANK
    if [ "$GPUS" -lt 2 ]; then gpu=0; export NCCL_HOSTID=rank$RANK; fi
    # exec makes the shell the rank, so both have one process number.
    if [ -n "${KILL_AFTER:-}" ] && [ "$RANK" = 1 ]; then (sleep "$KILL_AFTER"; kill -9 $$) & fi
    exec "$0" train --devices cuda:$gpu "$@"' "$lockstep" "$@"
}

recipe=(--model "${MODEL:-resnet18}" --data "$data" --dtype bf16 --batch-size 256 --limit-test 1)
for layout in "2 f32" "4 bf16"; do
  read -r shards gradients <<< "$layout"
  same=("${recipe[@]}" --shards "$shards" --gradients "$gradients" --max-steps 8)
  rm -f "$out"/ranks_{one,nccl,host}.jsonl
  ranks 60 "${same[@]}" --backend nccl --log "$out/ranks_nccl.jsonl" > /dev/null
  ranks 60 "${same[@]}" --backend host --log "$out/ranks_host.jsonl" > /dev/null
  "$lockstep" train "${same[@]}" --devices cuda:0 --log "$out/ranks_one.jsonl" > /dev/null
  grep -q '"backend":"nccl"' "$out/ranks_nccl.jsonl"
  weights=$(for log in one nccl host; do grep -o 'weights_sha256[^,}]*' "$out/ranks_$log.jsonl" | tail -1; done)
  echo "$shards shards, $gradients:" "$weights"
  [ "$(sort -u <<< "$weights" | wc -l)" = 1 ]
done

# The timeout exceeds the time this takes, so the job ends because a connection does.
begin=$SECONDS
if KILL_AFTER=12 ranks 60 "${recipe[@]}" --shards 2 --epochs 1000 --backend nccl > "$out/ranks_killed.txt" 2>&1; then
  echo "a killed rank went unnoticed"
  exit 1
fi
tail -3 "$out/ranks_killed.txt"
grep -q 'rank 1 lost (connection closed)' "$out/ranks_killed.txt"
[ $((SECONDS - begin)) -lt 40 ]
