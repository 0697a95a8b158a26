#!/usr/bin/env bash
# Tests how ./run and ./test install packages, with stand-ins for Debian's commands: the questions, and the apt
# commands. install_test.sh PROJECT FOLDER
set -euo pipefail
project=$1 folder=$2
failed=0

# stand_in NAME BODY: a command of that name, the only one on the path.
stand_in() { printf '#!/bin/bash\n%s\n' "$2" > "$folder/bin/$1"; chmod +x "$folder/bin/$1"; }
fresh() {
  rm -rf "$folder"
  mkdir -p "$folder/bin" "$folder/scripts"
  echo 'present  # and a comment
absent' > "$folder/scripts/packages.txt"
  local command
  for command in bash sed env; do ln -s "$(command -v $command)" "$folder/bin/$command"; done
  stand_in dpkg 'echo amd64'
  stand_in dpkg-query 'case $* in *present) echo amd64 installed ;; *) exit 1 ;; esac'
  stand_in apt-get 'echo "apt-get $*" >> "$LOG"'
  stand_in sudo 'echo "sudo" >> "$LOG"; exec "$@"'
  stand_in id 'echo 1000'
  : > "$folder/log"
}
# install [VARIABLE=VALUE...]: as the scripts do. `through` is a command that runs it, `setting` what they set before.
install() {
  local code="set -euo pipefail; cd '$folder'; . '$project/scripts/common.sh'; ${setting:-:}; install_packages scripts/packages.txt; echo went on"
  status=0
  output=$(${through:-direct} env -i PATH="$folder/bin" LOG="$folder/log" "$@" bash -c "$code" 2>&1 < "${answers:-/dev/null}") || status=$?
  log=$(cat "$folder/log")
}
direct() { "$@"; }
terminal() { script --quiet --return --command "$(printf '%q ' "$@")" /dev/null; }

expect() {  # WHAT VALUE PATTERN
  [[ $2 == $3 ]] || { failed=1; printf '%s: %s is\n%s\nexpected %s\n' "$case" "$1" "$2" "$3"; }
}
installed() {
  expect status "$status" 0
  expect output "$output" "*missing: absent*installing them and what they depend on*went on*"
  expect apt "$log" "*apt-get * update*apt-get * install -y --no-install-recommends absent"
}
refused() {  # PATTERN
  expect status "$status" 1
  expect output "$output" "$1"
  expect apt "$log" ""
}

case="root installs without sudo and says so"
fresh; stand_in id 'echo 0'; install; installed; expect apt "$log" "apt-get*"

case="nothing is missing"
fresh; stand_in dpkg-query 'echo all installed'; install; expect output "$output" "went on"; expect apt "$log" ""

case="another architecture's package beside this one's"
fresh; stand_in dpkg-query 'echo arm64 installed; echo amd64 installed'; install; expect output "$output" "went on"; expect apt "$log" ""

case="another architecture's package alone"
fresh; stand_in dpkg-query 'case $* in *present) echo amd64 installed ;; *) echo arm64 installed; echo amd64 not-installed ;; esac'
stand_in id 'echo 0'; install; installed

case="a package of another architecture"
fresh; echo 'absent:arm64' > "$folder/scripts/packages.txt"; stand_in id 'echo 0'
stand_in dpkg 'case $1 in --add-architecture) echo "dpkg $*" >> "$LOG" ;; *) echo amd64 ;; esac'
install; expect status "$status" 0; expect apt "$log" "dpkg --add-architecture arm64*install -y*absent:arm64"

case="a package of another architecture that is there"
stand_in dpkg-query 'echo arm64 installed'; : > "$folder/log"; install; expect output "$output" "went on"; expect apt "$log" ""

case="no sudo"
fresh; rm "$folder/bin/sudo"; install
refused "*missing: absent*no sudo*as root: apt-get install --no-install-recommends absent"

case="nobody to ask"
fresh; install; refused "*missing: absent*--yes*sudo apt-get install --no-install-recommends absent"

case="--yes"
fresh; setting=assume_yes=true install; installed; expect apt "$log" "sudo*"

case="CI"
fresh; install CI=true; installed; expect apt "$log" "sudo*"

case="CI that is not true"
fresh; install CI=false; refused "*--yes*"

case="yes on a terminal"
fresh; echo y > "$folder/answer"; through=terminal answers=$folder/answer install
expect status "$status" 0; expect output "$output" "*missing: absent*install them*went on*"; expect apt "$log" "sudo*install -y*absent"

case="no on a terminal"
fresh; echo n > "$folder/answer"; through=terminal answers=$folder/answer install; refused "*nothing was installed; to go on: sudo apt-get install*"

case="Enter on a terminal"
fresh; echo > "$folder/answer"; through=terminal answers=$folder/answer install; refused "*nothing was installed*"

# The scripts themselves, in a project whose build does nothing.
scripts() {
  fresh
  cp "$project/run" "$project/test" "$folder/"
  cp "$project"/scripts/{common,run_tests,bare}.sh "$folder/scripts/"
  local command
  for command in awk cat dirname find flock grep mkdir nproc tail; do ln -s "$(command -v $command)" "$folder/bin/$command"; done
  for command in cmake ninja; do stand_in $command ''; done
  stand_in ctest 'echo "1/1 Test #1: one ....   Passed    0.01 sec"'
  mkdir -p "$folder/build/apps/lockstep"
  printf '#!/bin/bash\necho "$@"\n' > "$folder/build/apps/lockstep/lockstep"
  chmod +x "$folder/build/apps/lockstep/lockstep"
  status=0
  ${prepare:-:}
  output=$(${as:-} env -i PATH="$folder/bin" LOG="$folder/log" "$folder/$1" "${@:2}" 2>&1 < /dev/null) || status=$?
  log=$(cat "$folder/log")
}
case="./run --yes"; scripts run --yes devices --all
expect status "$status" 0; expect apt "$log" "sudo*install*"; expect output "$output" "*devices --all"
case="./run"; scripts run devices --all; refused "*--yes*"
case="./run alone"; scripts run --yes; expect status "$status" 0
expect output "$output" "*verify --model lenet --layouts 1,2,2x1*train --num-devices 2 *--plot resnet18.svg*What to try next:*./run *./run *./run *"
case="./test --yes"; scripts test --yes; expect status "$status" 0; expect apt "$log" "sudo*install*"
expect output "$output" "*1 passed, 0 failed, 0 skipped; build 0:0?, tests 0:0?; all output: build/tests.log"
case="./test"; scripts test; refused "*--yes*"

# A build that cannot be written, by a user for whom that holds.
as=
[ "$(id -u)" -ne 0 ] || as="setpriv --reuid=65534 --regid=65534 --clear-groups"
here() { stand_in dpkg-query 'echo all installed'; touch "$folder/CMakeLists.txt" "$folder/CMakePresets.json"; mkdir -p "$folder"/{apps,bench,cmake,lockstep}; }
locked() { here; touch "$folder/build/apps/lockstep/lockstep"; chmod a-w "$folder/build"; }
older() { here; touch -d yesterday "$folder/build/apps/lockstep/lockstep"; chmod a-w "$folder/build"; }
if [ -z "$as" ] || $as test -x "$folder/bin"; then
  case="./run where nothing can be written, up to date"; prepare=locked scripts run devices
  expect status "$status" 0; expect output "$output" "devices"
  case="./run where nothing can be written, with newer sources"; prepare=older scripts run devices
  expect status "$status" 1; expect output "$output" "lockstep: cannot build: $folder/build cannot be written by *, and it is older than the sources*"
  case="./test where nothing can be written"; prepare=locked scripts test
  expect status "$status" 1; expect output "$output" "lockstep: cannot build: *"
  chmod u+w "$folder/build"
fi
as=

# What a build says without a terminal.
case="progress of a build"
shows() {
  stand_in dpkg-query 'echo all installed'
  stand_in ninja 'echo "ninja: Entering directory"; echo "[1/9] one"; echo "a.cc: warning: odd"; echo "[2/9] two"'
}
prepare=shows scripts run devices
expect status "$status" 0; expect output "$output" "*a.cc: warning: odd
devices"
breaks() { shows; stand_in ninja 'echo "[1/9] one"; echo "FAILED: one"; exit 1'; }
case="a build that fails"; prepare=breaks scripts run devices
expect status "$status" 1; expect output "$output" "*FAILED: one*lockstep: the build in build/ failed"

case="./test --yes with an unknown kind"; scripts test --yes all; expect status "$status" 1; expect output "$output" "*usage: ./test*"

case="./test bare without a suite"; scripts test bare; expect status "$status" 1; expect output "$output" "*usage: ./test bare bookworm|trixie"
case="./test bare without root"; scripts test bare trixie; expect status "$status" 1; expect output "$output" "*needs root*"; expect apt "$log" ""

exit $failed
