#!/usr/bin/env bash
# ./test bare SUITE: makes a new minimal Debian system, clones the tree's last commit into it, and runs ./run and ./test
# there as first commands, then ./test wheel. The system is a folder below TMPDIR (/var/tmp), or LOCKSTEP_BARE_FOLDER,
# which must not exist. It and all that runs in it are gone at the end, also after an interruption: they live in
# namespaces of their own, so that the kernel ends the processes and takes the mounts away with the first of them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/common.sh

# The mirror of this machine's apt, because no other may be reachable.
mirror() {
  local found
  found=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources} 2>/dev/null | sed 's/#.*//' |
    grep -oE '(https?|file):[^] ]*/debian/?( |$)' | tr -d ' ' | head -n 1 || true)
  echo "${found:-http://deb.debian.org/debian}"
}

timed() {  # WHAT COMMAND...
  local begin=$SECONDS status=0
  "${@:2}" || status=$?
  say "bare $suite: $1: status $status, $(((SECONDS - begin) / 60)):$(printf %02d $(((SECONDS - begin) % 60)))"
  return $status
}

make_system() {
  local from include=
  from=$(mirror)
  [[ $from != https:* ]] || include=--include=ca-certificates
  debootstrap --variant=minbase $include "$suite" "$root" "$from" > "$logs-system.log" 2>&1 || return
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
  local file
  for file in /etc/apt/apt.conf /etc/apt/apt.conf.d/*; do
    grep -qsE '[Pp]roxy|Check-Valid-Until|Check-Date|Retries' "$file" && cp "$file" "$root/etc/apt/apt.conf.d/"
  done
  mount -t proc proc "$root/proc" && mount --rbind /sys "$root/sys" && mount --bind /dev "$root/dev" &&
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts" &&
    mount --bind "$root/dev/pts/ptmx" "$root/dev/ptmx" && mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm" || return
  git -c safe.directory='*' clone --quiet --no-hardlinks "file://$PWD" "$root/lockstep"
}

# in_system LOG COMMAND...: with nothing of this machine's environment but proxies, and without the signals that `&` ignores.
in_system() {
  local log=$1 proxy proxies=()
  shift
  for proxy in http_proxy https_proxy no_proxy; do [ -z "${!proxy:-}" ] || proxies+=("$proxy=${!proxy}"); done
  env --default-signal=INT,QUIT chroot "$root" /usr/bin/env -i HOME=/root LANG=C.UTF-8 TERM=dumb PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    "${proxies[@]}" /bin/sh -c 'cd /lockstep && exec "$@"' sh "$@" 2>&1 < /dev/null |
    tee "$log" | { grep --line-buffered '^lockstep: ' || true; } >&2
}

show_end() {
  say "bare $suite: $1 failed; $2 ends with:"
  tail -n 60 "$2" >&2
}

# In the namespaces.
inside() {
  root=$2 suite=$3 logs=$4
  mount --make-rprivate /
  timed "the system" make_system || { show_end "making the system" "$logs-system.log"; return 1; }
  [ "${LOCKSTEP_BARE_STOP:-}" != system ] || return 0
  local status=0
  timed "./run --yes" in_system "$logs-run.log" ./run --yes || { status=1; show_end "./run" "$logs-run.log"; }
  timed "./test --yes" in_system "$logs-test.log" ./test --yes || { status=1; show_end "./test" "$logs-test.log"; }
  timed "./test --yes wheel" in_system "$logs-wheel.log" ./test --yes wheel ||
    { status=1; show_end "./test wheel" "$logs-wheel.log"; }
  say "bare $suite: $(grep -E '^[0-9]+ passed, ' "$logs-test.log" | tail -n 1 || true)"
  return $status
}

if [ "${1:-}" = inside ]; then
  inside "$@"
  exit
fi

suite=${1:-}
[[ $suite =~ ^(bookworm|trixie)$ ]] || die "usage: ./test bare bookworm|trixie"
[ "$(id -u)" -eq 0 ] || die "./test bare needs root, for debootstrap, mounts, and chroot"
for command in debootstrap unshare git; do
  command -v $command > /dev/null || die "./test bare needs $command: apt-get install debootstrap util-linux git"
done
[ -z "$(git -c safe.directory='*' status --porcelain)" ] || say "bare $suite: changes that are not committed are left out"
mkdir -p build-bare
if [ -n "${LOCKSTEP_BARE_FOLDER:-}" ]; then
  [ ! -e "$LOCKSTEP_BARE_FOLDER" ] || die "LOCKSTEP_BARE_FOLDER: $LOCKSTEP_BARE_FOLDER exists, expected a new folder"
  root=$LOCKSTEP_BARE_FOLDER
  mkdir -p "$root"
else
  root=$(mktemp -d "${TMPDIR:-/var/tmp}/lockstep-bare.XXXXXX")
fi
root=$(cd "$root" && pwd -P)

child=
clean() {
  local status=$? try
  trap '' INT TERM HUP
  if [ -n "$child" ]; then
    kill -KILL "$child" 2>/dev/null || true
    wait "$child" 2>/dev/null || true
  fi
  # The last processes may take a moment to end.
  for ((try = 0; try < 50; ++try)); do
    rm -rf --one-file-system "$root" 2>/dev/null && break
    sleep 0.2
  done
  [ ! -e "$root" ] || say "bare $suite: $root could not be removed"
  exit $status
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
chmod 755 "$root"
unshare --mount --pid --fork --mount-proc --kill-child=KILL scripts/bare.sh inside "$root" "$suite" "build-bare/$suite" &
child=$!
status=0
wait "$child" || status=$?
child=
exit $status
