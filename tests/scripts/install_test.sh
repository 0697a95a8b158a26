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
  cp "$project/scripts/common.sh" "$folder/scripts/"
  local command
  for command in cat dirname flock grep mkdir nproc; do ln -s "$(command -v $command)" "$folder/bin/$command"; done
  for command in cmake ctest ninja; do stand_in $command ''; done
  mkdir -p "$folder/build/apps/lockstep"
  printf '#!/bin/bash\necho "$@"\n' > "$folder/build/apps/lockstep/lockstep"
  chmod +x "$folder/build/apps/lockstep/lockstep"
  status=0
  output=$(env -i PATH="$folder/bin" LOG="$folder/log" "$folder/$1" "${@:2}" 2>&1 < /dev/null) || status=$?
  log=$(cat "$folder/log")
}
case="./run --yes"; scripts run --yes devices --all
expect status "$status" 0; expect apt "$log" "sudo*install*"; expect output "$output" "*devices --all"
case="./run"; scripts run devices --all; refused "*--yes*"
case="./run alone"; scripts run --yes; expect status "$status" 0
expect output "$output" "*verify --model lenet --layouts 1,2,2x1*train --num-devices 2 *--plot resnet18.svg*What to try next:*./run *./run *./run *"
case="./test --yes"; scripts test --yes; expect status "$status" 0; expect apt "$log" "sudo*install*"
case="./test"; scripts test; refused "*--yes*"
case="./test --yes with an unknown kind"; scripts test --yes all; expect status "$status" 1; expect output "$output" "*usage: ./test*"

exit $failed
