#!/usr/bin/env bash
# Shows that default options give one hash of the weights on any number of devices and ranks: each model, in f32 and
# bf16, on 1, 2, and 4 devices, on two ranks, and on two ranks with two devices each. one_hash.sh LOCKSTEP [STEPS].
# Exits 1 if any differ.
set -euo pipefail
lockstep=$(realpath "$1") steps=${2:-3}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0

hash_of() {  # COMMAND...: the hash after training
  : > "$log"
  "$@" --max-steps "$steps" --limit-train 600 --limit-test 1 --log "$log" > /dev/null 2>&1 || { echo failed; return; }
  sed -n 's/.*"weights_sha256":"\([0-9a-f]\{16\}\).*/\1/p' "$log" | tail -1
}

for model in mlp lenet resnet18; do
  for dtype in f32 bf16; do
    train=("$lockstep" train --model "$model" --dtype "$dtype")
    ranks=("$lockstep" launch --nproc-per-node 2 -- "${train[@]}")
    hashes=("$(hash_of "${train[@]}")")
    for devices in 1 2 4; do hashes+=("$(hash_of "${train[@]}" --num-devices "$devices")"); done
    hashes+=("$(hash_of "${ranks[@]}")" "$(hash_of "${ranks[@]}" --num-devices 2)")
    verdict=equal
    for hash in "${hashes[@]}"; do
      [ "$hash" = "${hashes[0]}" ] && [[ $hash =~ ^[0-9a-f]{16}$ ]] || verdict=DIFFERS failed=1
    done
    echo "$model $dtype: $verdict: ${hashes[*]}"
  done
done
exit "$failed"
