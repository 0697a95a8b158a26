#!/usr/bin/env bash
# tests/failure/netns.sh LOCKSTEP: two ranks in separate network namespaces, joined by one link, which goes down while
# they train. Each must end within the timeout and name the other. Needs root; without root it says so and succeeds.
set -euo pipefail
tool=$(realpath "${1:?the lockstep program}")
timeout=3

skip() { echo "netns: skipped: $1"; exit 0; }
die() { echo "netns: $1" >&2; cat "$folder"/rank*.err >&2; exit 1; }

command -v ip >/dev/null || skip "there is no ip (package iproute2)"
one=lockstep$$a two=lockstep$$b
folder=$(mktemp -d)
ranks=()
cleanup() {
  for process in "${ranks[@]}"; do kill -KILL "$process" 2>/dev/null || true; done
  ip netns del "$one" 2>/dev/null || true
  ip netns del "$two" 2>/dev/null || true
  rm -rf "$folder"
}
trap cleanup EXIT
ip netns add "$one" 2>/dev/null || skip "no right to make network namespaces"
ip netns add "$two"
ip -n "$one" link add veth0 type veth peer name veth1 netns "$two" 2>/dev/null || skip "no virtual links here"
for side in "$one veth0 10.98.7.1" "$two veth1 10.98.7.2"; do
  read -r space device address <<<"$side"
  ip -n "$space" address add "$address/24" dev "$device"
  ip -n "$space" link set "$device" up
  ip -n "$space" link set lo up
done

export MASTER_ADDR=10.98.7.1 MASTER_PORT=29500 WORLD_SIZE=2 LOCKSTEP_TIMEOUT=$timeout
LOCKSTEP_SECRET=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export LOCKSTEP_SECRET
start() {  # namespace, rank
  RANK=$2 ip netns exec "$1" "$tool" train --model mlp --limit-train 2000 --limit-test 100 --epochs 1000000 --shards 2 \
    --threads-per-shard 1 --log "$folder/log$2" >"$folder/rank$2.out" 2>"$folder/rank$2.err" &
  ranks+=($!)
}
start "$one" 0
start "$two" 1
for _ in $(seq 300); do
  grep -qs '"step":20,' "$folder/log0" && break
  sleep 0.1
done
grep -qs '"step":20,' "$folder/log0" || die "the ranks do not train"

ip -n "$one" link set veth0 down
begin=$(date +%s%N)
for rank in 0 1; do
  status=0
  wait "${ranks[$rank]}" || status=$?
  took=$((($(date +%s%N) - begin) / 1000000))
  [ "$status" = 1 ] || die "rank $rank ended with status $status"
  [ "$took" -lt $((timeout * 1000 + 5000)) ] || die "rank $rank took $took ms"
  [ "$(wc -l <"$folder/rank$rank.err")" = 1 ] || die "rank $rank says more than one line"
  grep -q "^lockstep: rank $((1 - rank)) lost (no answer within $timeout s) during all-" "$folder/rank$rank.err" ||
    die "rank $rank does not say whom it lost"
  echo "rank $rank, $took ms after the link went down: $(cat "$folder/rank$rank.err")"
done
ranks=()
