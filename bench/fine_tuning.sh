#!/usr/bin/env bash
# Fine-tunes torchvision's ResNet-18 on 300 pictures of five shapes, from weights of eight other shapes, and trains it on
# them from scratch in the same 80 steps. Prints the table of docs/your-data.md.
# fine_tuning.sh LOCKSTEP [SEEDS]: needs python3-pil and python3-numpy; two minutes on two quiet cores.
set -euo pipefail
lockstep=$(realpath "$1") seeds=${2:-3}
here=$(realpath "$(dirname "$0")")
work=${PICTURES_FOLDER:-$(mktemp -d)}
cd "$work"
[ -n "${PICTURES_FOLDER:-}" ] || trap 'rm -rf "$work"' EXIT

draw() {  # FOLDER COUNT SEED CLASSES
  [ -d "$1" ] || /usr/bin/python3 "$here/draw_pictures.py" "$1" --count "$2" --seed "$3" --classes "$4" \
    --size 32x32 --format png --detail 0.3 --turn 20
}
other=triangle,disc,ring,star4,bar,corner,half,star8
shapes=square,pentagon,star5,cross,arrow
draw pre/train 2400 10 $other
draw pre/val 160 11 $other
draw ft/train 300 12 $shapes
draw ft/val 500 13 $shapes

recipe=(--model torchvision:resnet18 --num-devices 1 --batch-size 32 --shards 1 --optimizer adam --lr 0.001)
[ -f pre.safetensors ] || "$lockstep" train --data pre "${recipe[@]}" --epochs 5 --export pre.safetensors 2> pre.err
for seed in $(seq 0 $((seeds - 1))); do
  for start in scratch tuned; do
    from=()
    [ $start = scratch ] || from=(--init-from pre.safetensors)
    "$lockstep" train --data ft "${recipe[@]}" "${from[@]}" --epochs 8 --seed "$seed" --log "$start$seed.jsonl" \
      > "$start$seed.out" 2> "$start$seed.err"
  done
done
echo "| seed | from scratch | fine-tuned |"
echo "|---|---|---|"
for seed in $(seq 0 $((seeds - 1))); do
  accuracies() { grep '"event":"epoch"' "$1" | grep -o '"test_acc":[0-9.]*,' | cut -d: -f2 | awk '{printf "%s%.2f", (NR > 1 ? ", " : ""), $1}'; }
  echo "| $seed | $(accuracies "scratch$seed.jsonl") | $(accuracies "tuned$seed.jsonl") |"
done
