#!/usr/bin/env bash
# reproducible.sh FOLDER: copies the tree into another folder, builds tool, library, and Python module there as in the
# build FOLDER, and compares each object, archive, program, and module byte by byte. ./test reproducible calls it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/common.sh
build=$1
other=$(mktemp -d)
trap 'rm -rf "$other"' EXIT
tree=$other/a/deeper/folder/tree
mkdir -p "$tree"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$tree"

# The same options. No cache, which would answer with the objects of the first build.
options=()
while IFS= read -r option; do options+=("-D$option"); done < <(
  grep -E '^(LOCKSTEP_[A-Z_]+|CMAKE_(BUILD_TYPE|CXX_FLAGS|CXX_COMPILER|INSTALL_PREFIX)|Python3_EXECUTABLE):(BOOL|STRING|PATH|FILEPATH)=' \
    "$build/CMakeCache.txt")
export CCACHE_DISABLE=1
say "building a second time in $tree/$build/"
quietly cmake -S "$tree" -B "$tree/$build" -G Ninja "${options[@]}"
(set -o pipefail; ninja -C "$tree/$build" lockstep lockstep_python 2>&1 | show_build) || die "the second build failed"

same=0 differ=0
while IFS= read -r file; do
  if cmp -s "$file" "$tree/$file"; then
    same=$((same + 1))
  else
    differ=$((differ + 1))
    say "differs: $file: $(cmp "$file" "$tree/$file" 2>&1 | tail -n 1)"
  fi
done < <(cd "$tree" && find "$build" -type f \( -path '*.dir/*.o' -o -name '*.a' -o -name '*.so' -o -path '*/apps/lockstep/lockstep' \) | sort)
say "$same files have equal bytes, $differ differ"
[ "$same" -gt 0 ] && [ "$differ" -eq 0 ]
