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
configure=()
# Without a GPU here, device code is compiled once, to PTX: quickly, and a later GPU can still translate it.
command -v nvidia-smi > /dev/null || configure=(-DLOCKSTEP_CUDA_ARCHITECTURES=80-virtual)
emulation=OFF
build() (
  preset=$1 folder=$2 quiet=--quiet launcher=()
  shift 2
  mkdir -p "$folder"
  exec 9>"$folder/.lock"
  flock 9
  if [ ! -f "$folder/build.ninja" ]; then
    say "building in $folder/ (a few minutes the first time)"
    [ ! -t 2 ] || quiet=
    command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    quietly cmake --preset "$preset" "${launcher[@]}" "${configure[@]}" -DLOCKSTEP_CUDA_EMULATION=$emulation
  elif ! grep -q "^LOCKSTEP_CUDA_EMULATION:BOOL=$emulation" "$folder/CMakeCache.txt"; then
    quietly cmake -DLOCKSTEP_CUDA_EMULATION=$emulation "$folder"
  fi
  ninja -C "$folder" $quiet -j "$(nproc)" "$@" >&2 || die "the build in $folder/ failed"
)
