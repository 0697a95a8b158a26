#!/usr/bin/env bash
# ./test static: shows that the tool of a static build, and a program that links its library, need no other file. They
# train and predict in a folder that they take for the whole system. As root, for chroot.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/common.sh
build=$1
data=/usr/share/datasets/fashion-mnist
[ "$(id -u)" -eq 0 ] || die "./test static needs root, for chroot"

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/data" "$root/runs"
cp -L "$data"/*-ubyte.gz "$root/data"
cmake --install "$build" --prefix "$root/prefix" --strip > /dev/null
mv "$root/prefix/bin/lockstep" "$root/lockstep"
export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(find "$root/prefix" -name pkgconfig)
"${CXX:-c++}" -std=c++20 -O2 -s -I. examples/predict.cc -o "$root/predict" $(pkgconf --cflags --libs lockstep) 2> "$root/warnings" ||
  { cat "$root/warnings" >&2; die "examples/predict.cc does not link"; }
rm -rf "$root/prefix" "$root/warnings"

# PROGRAM MEGABYTES: needs no library, no loader, and no more than that.
small() {
  local file=$root/$1 size
  ! readelf -dl "$file" | grep -E 'NEEDED|INTERP' >&2 || die "$1 is not static"
  size=$(stat -c %s "$file")
  [ "$size" -le $(($2 * 1000000)) ] || die "$1 has $size bytes, expected at most $2 MB"
  say "$1: $size bytes, static"
}
small lockstep 16
small predict 12

chroot=$(PATH=$PATH:/usr/sbin command -v chroot)
here() { env -i LOCKSTEP_DATA=/data "$chroot" "$root" "$@" < /dev/null; }
# As ./test arm64: the hash on every machine.
here /lockstep train --model lenet --num-devices 1 --shards 2 --batch-size 64 --max-steps 4 --epochs 4 \
  --limit-train 161 --limit-test 1 --log /log.jsonl --export /lenet.safetensors
weights=$(grep -oE '"weights_sha256":"[0-9a-f]{64}"' "$root/log.jsonl" | tail -n 1 | cut -d'"' -f4 || true)
[ -n "$weights" ] || die "no hash of the weights in the log"
grep -q "$weights\"},  // lenet\$" apps/lockstep/bits/golden_hashes.cc || die "lenet: $weights, expected a hash of golden_hashes.cc"
here /lockstep eval --model lenet --init-from /lenet.safetensors --limit-test 1000
here /predict /lenet.safetensors 7
# Two devices, and a run on data of one's own.
awk 'BEGIN { print "x,y,side"; for (i = 0; i < 400; ++i) { x = i * 7 % 20; y = i % 20; print x "," y "," (x > y ? "left" : "right") } }' \
  > "$root/points.csv"
here /lockstep train --data /points.csv --num-devices 2 --epochs 2 --save /runs/points
here /lockstep predict --run /runs/points /points.csv > "$root/predictions.csv"
[ "$(wc -l < "$root/predictions.csv")" -eq 401 ] || die "predict: found $(wc -l < "$root/predictions.csv") lines, expected 401"
say "static: it trained and predicted in an empty system"
