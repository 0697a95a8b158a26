#!/usr/bin/env bash
# Compares the tutorial's ResNet-18 on Fashion-MNIST on one GPU: Lockstep, with and without steps recorded as CUDA
# graphs, and PyTorch's variants. Prints each speed's share of the limit that the GPU's matrix products set.
# compare_pytorch_gpu.sh LOCKSTEP DATA [BATCH...]: the tool and the data's folder. Needs python3 with PyTorch for CUDA.
set -euo pipefail
lockstep=$1 data=$2
shift 2
here=$(dirname "${BASH_SOURCE[0]}")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
limit=$(python3 "$here/pytorch_gpu.py" limit)
echo "$limit"
# Adds the share of the limit to lines with images/s.
share() {
  awk -v limit="$(cut -d' ' -f2 <<< "$limit")" '{
    speed = $0
    sub(/ images\/s.*/, "", speed)
    sub(/.* /, "", speed)
    printf "%s, %.1f %% of the limit\n", $0, 100 * speed / limit
  }'
}
for batch in "${@:-256}"; do
  for dtype in f32 bf16 f16; do
    for recorded in '' --record-steps; do
      # Unquoted, because it may be empty.
      "$lockstep" train --data "$data" --devices cuda:0 --dtype $dtype --batch-size "$batch" --max-steps 60 --limit-test 1 \
        $recorded --log "$log" > /dev/null
      sed -n 's/.*"event":"step".*"images_per_second":\([0-9.]*\).*/\1/p' "$log" | tail -n +20 | sort -n |
        awk -v name="lockstep $dtype, batch $batch${recorded:+, recorded}" \
          '{v[NR] = $1} END {m = v[int((NR + 1) / 2)]; printf "%s: %.0f images/s, %.2f s/epoch\n", name, m, 60000 / m}' | share
    done
  done
  python3 "$here/pytorch_gpu.py" "$batch" | share
done
