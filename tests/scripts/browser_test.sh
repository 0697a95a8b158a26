#!/usr/bin/env bash
# browser_test.sh SOURCE FOLDER TOOL: the page of examples/browser, with a net that has just been trained, classifies
# pictures in headless Chromium. Skipped (77) without Chromium, the data set, and ONNXRUNTIME_WEB, the folder of the npm
# package onnxruntime-web.
set -euo pipefail
source=$1 folder=$2 tool=$3
skip() { echo "skipped: $1"; exit 77; }
[ -n "${ONNXRUNTIME_WEB:-}" ] || skip "ONNXRUNTIME_WEB is not set"
command -v chromium > /dev/null || skip "chromium is not installed"
command -v python3 > /dev/null || skip "python3 is not installed"
[ -e /usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz ] || skip "dataset-fashion-mnist is not installed"

rm -rf "$folder" && mkdir -p "$folder"
"$tool" train --model lenet --limit-train 2048 --limit-test 64 --epochs 2 --batch-size 32 --optimizer adam --lr 0.002 \
  --save "$folder/run" > "$folder/train.log"
LOCKSTEP=$tool "$source/examples/browser/make.sh" "$folder/run" "$folder/page" > "$folder/make.log"
PYTHONUNBUFFERED=1 python3 -m http.server --bind 127.0.0.1 --directory "$folder/page" 0 > "$folder/server.log" 2>&1 &
trap 'kill $!' EXIT
until grep -q 'port [0-9]' "$folder/server.log"; do sleep 0.1; kill -0 $!; done
port=$(sed -n 's/^.* port \([0-9]*\).*$/\1/p' "$folder/server.log" | head -n 1)
chromium --headless --no-sandbox --disable-gpu --user-data-dir="$folder/chromium" --virtual-time-budget=60000 \
  --dump-dom "http://127.0.0.1:$port/index.html?count=500" > "$folder/page.html" 2> "$folder/chromium.log"
right=$(sed -n 's/^.*>\([0-9]*\) of 500 pictures are right,.*$/\1/p' "$folder/page.html")
echo "right: ${right:-none} of 500"
[ "${right:-0}" -ge 300 ] || { cat "$folder/page.html"; exit 1; }
# The third one shows trousers, which such a net tells from anything else.
grep -q '<canvas[^>]*aria-label="trouser"></canvas><figcaption class="right">trouser, ' "$folder/page.html"
