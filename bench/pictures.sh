#!/usr/bin/env bash
# Trains one epoch on a folder of pictures larger than the memory that it may use, and on the same pictures decoded and
# resized before, in memory. Prints the table of docs/benchmarks.md, with the time of libjpeg-turbo's djpeg. pictures.sh
# LOCKSTEP [PICTURES [MODEL [EDGE]]]: needs python3-pil, python3-numpy, libjpeg-turbo-progs, and time. 28,000 pictures
# are 2.1 GB. As root on a system with control groups (version 1), memory, including the file cache, is limited to 700
# MB. If other programs run, CPU times are more reliable than wall times.
set -euo pipefail
lockstep=$(realpath "$1") pictures=${2:-28000} model=${3:-lenet} edge=${4:-32}
here=$(realpath "$(dirname "$0")")
work=${PICTURES_FOLDER:-$(mktemp -d)}
cd "$work"
[ -n "${PICTURES_FOLDER:-}" ] || trap 'rm -rf "$work"' EXIT

[ -d set ] || /usr/bin/python3 "$here/draw_pictures.py" set --count "$pictures" \
  --classes triangle,square,disc,ring,star5,cross,arrow,half
[ -f set.npz ] || /usr/bin/python3 - "$edge" <<'PYTHON'
import glob, os, sys
import numpy
from PIL import Image
edge = int(sys.argv[1])
files = sorted(glob.glob("set/*/*.jpg"))
names = sorted(os.listdir("set"))
x = numpy.empty((len(files), 3, edge, edge), numpy.uint8)
for i, file in enumerate(files):
    image = Image.open(file)
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    box = (left, top, left + side, top + side)
    x[i] = numpy.asarray(image.resize((edge, edge), Image.BILINEAR, box=box)).transpose(2, 0, 1)
y = numpy.array([names.index(file.split("/")[1]) for file in files])
numpy.savez("set.npz", x=x, y=y)
PYTHON

group=/sys/fs/cgroup/memory/lockstep-pictures
limited() {
  (
    if mkdir -p "$group" 2>/dev/null && echo $((700 << 20)) 2>/dev/null > "$group/memory.limit_in_bytes"; then
      echo "$BASHPID" > "$group/cgroup.procs"
    else
      echo "pictures.sh: memory is not limited here" >&2
    fi
    "$@"
  )
}
timed() { /usr/bin/time -o "$1" -f "%e %U %S %M" "${@:2}"; }  # FILE COMMAND...: seconds, user, system, KB

find set/ -name '*.jpg' | sort | awk 'NR % 14 == 0' > list
count=$(wc -l < list)
/usr/bin/python3 -c 'from PIL import Image; Image.new("RGB", (8, 8)).save("tiny.jpg")'
timed djpeg.time xargs -a list -n1 djpeg -nosmooth -outfile /dev/null
awk -v n="$count" 'BEGIN {while (n-- > 0) print "tiny.jpg"}' > tiny.list
timed start.time xargs -a tiny.list -n1 djpeg -nosmooth -outfile /dev/null

train() {  # NAME DATA COMMAND...
  timed "$1.time" "${@:3}" "$lockstep" train --data "$2" --model "$model" --epochs 1 --log "$1.jsonl" "${size[@]}" > "$1.out"
}
size=()
train memory set.npz
size=(--image-size "$edge")
timed open.time "$lockstep" train --data set "${size[@]}" --model "$model" --dry-run > open.out
limited bash -c "$(declare -f train timed); $(declare -p lockstep model size); train files set"

/usr/bin/python3 - "$count" <<'PYTHON'
import json, sys
def read(name):
    return [float(v) for v in open(name + ".time").read().split()[-4:]]
def epoch(name):
    return [e for e in map(json.loads, open(name + ".jsonl")) if e["event"] == "epoch"][-1]
def samples(name):
    return sum(e["samples"] for e in map(json.loads, open(name + ".jsonl")) if e["event"] == "step")
count = int(sys.argv[1])
djpeg, start, opening = read("djpeg"), read("start"), read("open")
cpu = lambda t: t[1] + t[2]
n = samples("files")
print("| | images/s | CPU ms an image | waited for data | peak memory, MB |")
print("|---|---|---|---|---|")
print(f"| djpeg, alone | {count / djpeg[0]:.0f} | {1000 * cpu(djpeg) / count:.2f} (start {1000 * cpu(start) / count:.2f}) | | |")
print(f"| opened: headers, then decoded for mean and deviation | {n / opening[0]:.0f} | {1000 * cpu(opening) / n:.2f} | | {opening[3] / 1000:.0f} |")
for name, cost in [("files", cpu(read("files")) - cpu(opening)), ("memory", cpu(read("memory")))]:
    e = epoch(name)
    tested = e["test_total"]
    print(f"| trained from {name} | {n / e['seconds']:.0f} | {1000 * cost / (n + tested):.2f} "
          f"| {100 * e['data_seconds'] / e['seconds']:.0f} % | {read(name)[3] / 1000:.0f} |")
PYTHON
