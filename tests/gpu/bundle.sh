#!/usr/bin/env bash
# bundle.sh BUILD FILE.tar.xz [emulated_]: packs what run_all.sh needs from a build with LOCKSTEP_CUDA=ON, for a machine with a GPU
# but without the packages that Lockstep is built from: the stripped programs and the libraries that they load, except
# the C library and CUDA's. That machine's C library must be at least as new as this one's. Includes gpu_bandwidth if it
# was built.
# With `emulated_`: packs the programs of a build with LOCKSTEP_CUDA_EMULATION=ON.
set -euo pipefail
build=$1 file=$(realpath "$2") folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/bin" "$folder/lib"
if [ "${3:-}" = emulated_ ]; then
  programs=("$build"/tests/cuda_emulator/emulated_{lockstep,lockstep-bench,gpu_test,gpu_devices_test,automatic_parallelism})
else
  programs=("$build"/{apps/lockstep/lockstep,apps/lockstep/lockstep-bench,tests/gpu/gpu_test,tests/gpu/gpu_devices_test,examples/automatic_parallelism})
  bandwidth=$build/tests/gpu/bandwidth/gpu_bandwidth
  [ ! -e "$bandwidth" ] || programs+=("$bandwidth")
fi
for program in "${programs[@]}"; do
  name=${program##*/}
  strip -o "$folder/bin/${name#emulated_}" "$program"
  chmod +x "$folder/bin/${name#emulated_}"
  ldd "$program" | awk '$2 == "=>" && $3 ~ /^\// {print $3}'
done | sort -u | while read -r library; do
  case ${library##*/} in
    libc.so* | libm.so* | libdl.so* | libpthread.so* | librt.so* | ld-linux* | libcuda* | libcudnn* | libcublas* | libnccl* | libnvrtc*) ;;
    *) cp -L "$library" "$folder/lib/" ;;
  esac
done
tar -cf "$file" --use-compress-program='xz -1' -C "$folder" bin lib
du -h "$file" >&2
