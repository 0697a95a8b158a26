#!/usr/bin/env bash
# Compares the weights of two builds of lockstep over recipes and layouts, to show that a change moves no bit. Hashes
# may depend on the machine, so both builds compute them here. same_bits.sh OLD NEW [quick]. Exits 1 if any differ.
set -euo pipefail
old=$(realpath "$1") new=$(realpath "$2")
layouts="1 2 3 8 2x1 4x1 2x2"
[ "${3:-}" != quick ] || layouts="1 2 2x1"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

hash_of() {  # PROGRAM LAYOUT OPTIONS...: the hash of the weights after training
  local program=$1 layout=$2 file=$folder/weights.safetensors command
  shift 2
  command=("$program" train --limit-test 100 --epochs 2 --export "$file" "$@")
  rm -f "$file"
  case $layout in
    *x*) "$program" launch --nproc-per-node "${layout%x*}" -- "${command[@]}" --num-devices "${layout#*x}" ;;
    *) "${command[@]}" --num-devices "$layout" ;;
  esac > "$folder/output" 2>&1 || { tail -3 "$folder/output" >&2; echo failed; return; }
  sha256sum "$file" | cut -c1-16
}

compare() {  # OPTIONS...
  local expected layout found shards=8
  expected=$(hash_of "$old" 1 "$@")
  [[ " $* " =~ " --shards "([0-9]+) ]] && shards=${BASH_REMATCH[1]}
  for layout in $layouts; do
    # More devices than shards would be an error.
    [ "$((${layout/x/*}))" -le "$shards" ] || continue
    found=$(hash_of "$new" "$layout" "$@")
    [ "$found" = "$expected" ] && [ "$found" != failed ] && continue
    echo "DIFFERS: $* on $layout: $found, expected $expected"
    failed=1
  done
  echo "$expected  $*"
}

for model in mlp lenet resnet18; do
  size=(--batch-size 256 --limit-train 900 --max-steps 5)  # the last batch is short
  [ "$model" != resnet18 ] || size=(--batch-size 32 --limit-train 80 --max-steps 3)
  for shards in 1 4 8; do
    compare --model "$model" --shards "$shards" "${size[@]}"
  done
  compare --model "$model" --shards 8 "${size[@]}" --dtype bf16
  compare --model "$model" --shards 8 "${size[@]}" --optimizer adamw --lr 0.001 --weight-decay 0.01 --clip 0.5
  compare --model "$model" --shards 4 "${size[@]}" --accumulate 4 --momentum 0.9 --label-smoothing 0.1
done
compare --model resnet18 --shards 8 --sync-bn "${size[@]}"
size=(--batch-size 256 --limit-train 900 --max-steps 5)
compare --model lenet --shards 8 --gradients bf16 "${size[@]}"
compare --model lenet --shards 8 --dtype f16 "${size[@]}"
# Fewer samples than shards: some shards are missing, and one of four ranks has none.
compare --model lenet --shards 8 --batch-size 5 --limit-train 18 --max-steps 4
exit $failed
