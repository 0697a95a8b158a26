#!/usr/bin/env bash
# fuzz.sh FOLDER SECONDS [READER]: runs the fuzzer of the build FOLDER with each reader, or with one, for so many
# seconds. What reaches new code is kept in FOLDER/corpus, where the next run begins; inputs that are faults come into
# FOLDER/findings. ./test fuzz calls it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/common.sh
build=$1 seconds=$2 readers=${3:-}
fuzz=$build/tests/fuzz/fuzz
[[ $seconds =~ ^[1-9][0-9]*$ ]] || die "./test fuzz $seconds: expected a number of seconds for each reader"
[ -n "$readers" ] || readers=$("$fuzz" --list)

# The files of readers that read files, in memory where that is possible.
folder=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)")
trap 'rm -rf "$folder"' EXIT
export TMPDIR=$folder
mkdir -p "$build/findings"
failed=false
printf '%-20s %10s %8s %8s  %s\n' reader inputs branches corpus findings
for reader in $readers; do
  corpus=$build/corpus/$reader log=$build/findings/$reader.log
  "$fuzz" --reader="$reader" --seeds="$corpus"
  known=(); [ ! -d "tests/fuzz/corpus/$reader" ] || known=("tests/fuzz/corpus/$reader")
  # Memory in proportion to the input is tests/fuzz/limits.h's; these are for the process, and for hangs.
  if "$fuzz" --reader="$reader" -max_total_time="$seconds" -max_len=65536 -timeout=60 -rss_limit_mb=3000 \
    -print_final_stats=1 -artifact_prefix="$build/findings/$reader-" "$corpus" "${known[@]}" > "$log" 2>&1 < /dev/null
  then found=none
  else found="$(grep -m 1 -E '^fuzz: |ERROR: |runtime error: ' "$log" | cut -c 1-150 || true); see $log" failed=true
  fi
  printf '%-20s %10s %8s %8s  %s\n' "$reader" "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
    "$(grep -o 'cov: [0-9]*' "$log" | tail -n 1 | cut -d ' ' -f 2)" "$(find "$corpus" -type f | wc -l)" "$found"
done
! $failed
