# Shared by ./run and ./test, which change into the project's folder first.

say() { echo "lockstep: $*" >&2; }
die() { say "$*"; exit 1; }

# install_packages FILE...: installs the missing Debian packages of these lists. As root, it prints what it installs.
# Otherwise it uses sudo and asks first, except with assume_yes=true or CI=true. A package NAME:ARCHITECTURE is of another
# architecture, which it adds.
assume_yes=false
install_packages() {
  command -v dpkg-query >/dev/null || return 0  # not Debian: CMake reports what is missing
  # Packages of other architectures may be installed beside those of this one.
  local package found pattern native architecture missing=() foreign=() as_root=()
  native=$(dpkg --print-architecture)
  for package in $(sed 's/#.*//' "$@"); do
    architecture=$native
    [[ $package != *:* ]] || architecture=${package#*:}
    found=$(dpkg-query -W -f='${Architecture} ${db:Status-Status}\n' "$package" 2>/dev/null || true)
    pattern=$'\n'"(all|$architecture) installed"$'\n'
    [[ $'\n'$found$'\n' =~ $pattern ]] && continue
    missing+=("$package")
    [ "$architecture" = "$native" ] || foreign=("$architecture")
  done
  [ ${#missing[@]} -gt 0 ] || return 0

  say "these Debian packages are missing: ${missing[*]}"
  local by_hand="apt-get install --no-install-recommends ${missing[*]}"
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "there is no sudo to install them with; as root: $by_hand"
    as_root=(sudo)
    if ! $assume_yes && [ "${CI:-}" != true ]; then
      [ -t 0 ] && [ -t 2 ] || die "there is no terminal to ask on; add --yes, or run: sudo $by_hand"
      local answer=
      read -r -p "lockstep: install them, and what they depend on, with sudo apt-get? [y/N] " answer || true
      [[ $answer =~ ^[Yy]([Ee][Ss])?$ ]] || die "nothing was installed; to go on: sudo $by_hand"
    fi
  fi
  say "installing them and what they depend on"
  [ ${#foreign[@]} -eq 0 ] || quietly "${as_root[@]}" dpkg --add-architecture "${foreign[@]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300)
  "${apt[@]}" update >&2 || say "apt-get update failed; trying with the package lists at hand"
  quietly "${apt[@]}" install -y --no-install-recommends "${missing[@]}"
}

# Runs a command and shows its output only if it fails.
quietly() {
  local output
  output=$("$@" 2>&1 </dev/null) && return
  printf '%s\n' "$output" >&2
  die "failed: $*"
}

# build PRESET FOLDER TARGET...: configures the first time, with the arguments in `configure`, then builds what has
# changed. Locks the folder, so that only one build runs there at a time.
# emulation=ON adds the tests that run the CUDA back end on the CPU; OFF leaves them out again.
# python=ON builds the Python package also where AUTO leaves it out: with sanitizers.
configure=()
# The Python that Debian's packages are for. Another python3 may come first on the path.
[ ! -x /usr/bin/python3 ] || configure=(-DPython3_EXECUTABLE=/usr/bin/python3)
# Without a GPU here, device code is compiled once, to PTX: quickly, and a later GPU can still translate it.
command -v nvidia-smi > /dev/null || configure+=(-DLOCKSTEP_CUDA_ARCHITECTURES=80-virtual)
emulation=OFF
python=AUTO
build() (
  preset=$1 folder=$2 launcher=()
  shift 2
  if ! writable "$folder"; then
    up_to_date "$folder" "$@" && return
    die "cannot build: $PWD/$folder cannot be written by $(id -un), and it is older than the sources or not built for \
this. Run this as the tree's owner, or in a copy of the tree"
  fi
  mkdir -p "$folder"
  exec 9>"$folder/.lock"
  flock 9
  if [ ! -f "$folder/build.ninja" ]; then
    say "building in $folder/ (a few minutes the first time)"
    command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    quietly env CXXFLAGS="${CXXFLAGS:-} $(more_memory)" cmake --preset "$preset" "${launcher[@]}" "${configure[@]}" \
      -DLOCKSTEP_CUDA_EMULATION=$emulation -DLOCKSTEP_PYTHON=$python
  elif ! { grep -q "^LOCKSTEP_CUDA_EMULATION:BOOL=$emulation" "$folder/CMakeCache.txt" &&
           grep -q "^LOCKSTEP_PYTHON:STRING=$python" "$folder/CMakeCache.txt"; }; then
    quietly cmake "${configure[@]}" -DLOCKSTEP_CUDA_EMULATION=$emulation -DLOCKSTEP_PYTHON=$python "$folder"
  fi
  (set -o pipefail; ninja -C "$folder" -j "$(nproc)" "$@" 2>&1 | show_build) || die "the build in $folder/ failed"
)

# The option that lets g++ use more memory, up to 1.6 GB a process, and a seventh less time. Where there is enough.
more_memory() {
  [[ $("${CXX:-c++}" -v 2>&1) == *"gcc version"* ]] || return 0
  awk -v cores="$(nproc)" '/^MemAvailable:/ && $2 > 2500000 * cores { print "--param=ggc-min-heapsize=1000000" }' /proc/meminfo
}

# writable FOLDER: whether this user can build in it, or make it.
writable() {
  [ -e "$1" ] || { [ -w . ]; return; }
  [ -w "$1" ] && { [ ! -e "$1/.lock" ] || [ -w "$1/.lock" ]; } && { [ ! -e "$1/.ninja_log" ] || [ -w "$1/.ninja_log" ]; }
}

# up_to_date FOLDER TARGET...: whether the tool, the one target, is built and nothing that it is made of is newer.
up_to_date() {
  local tool=$1/apps/lockstep/lockstep
  [ "${*:2}" = lockstep ] && [ -x "$tool" ] || return
  [ -z "$(find CMakeLists.txt CMakePresets.json cmake lockstep apps bench -newer "$tool" -type f -print -quit)" ]
}

# Shows how far ninja is: in one line on a terminal, else with a line every 20 seconds. Passes on what compilers say.
show_build() {
  local line shown=$SECONDS columns=80 clear=
  if [ -t 2 ]; then
    clear=$'\r\033[K'
    read -r _ columns < <(stty size <&2 2>/dev/null || echo 24 80) || true
    [ "$columns" -gt 20 ] || columns=80
  fi
  while IFS= read -r line || [ -n "$line" ]; do
    if [[ $line =~ ^\[([0-9]+)/([0-9]+)\]\  ]]; then
      if [ -n "$clear" ]; then
        printf '%s%s' "$clear" "${line:0:columns-1}" >&2
      elif [ $((SECONDS - shown)) -ge 20 ]; then
        shown=$SECONDS
        say "building: ${BASH_REMATCH[1]} of ${BASH_REMATCH[2]} steps"
      fi
    elif [[ $line != "ninja: Entering directory"* && $line != "ninja: no work to do." && $line != "-- "* ]]; then
      printf '%s%s\n' "$clear" "$line" >&2
    fi
  done
  printf '%s' "$clear" >&2
}
