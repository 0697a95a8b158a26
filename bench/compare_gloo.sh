#!/usr/bin/env bash
# Compares all-reduce between two processes with Gloo's, in turns: compare_gloo.sh LOCKSTEP [TURNS]. Needs libgloo-dev,
# two cores, and a quiet machine.
set -euo pipefail
lockstep=$1 turns=${2:-3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
g++ -std=c++17 -O2 -o "$folder/gloo" "$(dirname "${BASH_SOURCE[0]}")/gloo_allreduce.cc" -lgloo -lpthread
for turn in $(seq "$turns"); do
  echo "turn $turn: Gloo over TCP loopback, median of one call"
  "$folder/gloo" 15
  "$lockstep" bench allreduce --rounds 15
done
