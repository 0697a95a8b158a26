#!/usr/bin/env bash
# Tests which CUDA the build takes, with stand-ins for its files. cuda_versions_test.sh PROJECT FOLDER CMAKE
set -euo pipefail
project=$1 folder=$2 cmake=$3
failed=0

# cuda CUDART_VERSION CUDNN_MAJOR NVCC: an installation whose nvcc is this shell script.
cuda() {
  rm -rf "$folder"
  mkdir -p "$folder"/cuda/{bin,include,lib64} "$folder/probe"
  printf '#!/bin/sh\n%s\n' "$3" > "$folder/cuda/bin/nvcc"
  chmod +x "$folder/cuda/bin/nvcc"
  touch "$folder"/cuda/include/{cuda_runtime,cudnn,cublasLt}.h "$folder"/cuda/lib64/lib{cudart.so.13,cudnn.so.9,cublasLt.so.13}
  printf '#define CUDART_VERSION  %s\n' "$1" > "$folder/cuda/include/cuda_runtime_api.h"
  printf '#define CUDNN_MAJOR %s\n' "$2" > "$folder/cuda/include/cudnn_version.h"
  cat > "$folder/probe/CMakeLists.txt" <<TEXT
cmake_minimum_required(VERSION 3.25)
project(Probe LANGUAGES NONE)
list(APPEND CMAKE_MODULE_PATH $project/cmake)
find_package(CudaLibraries QUIET)
message(STATUS "found: \${CudaLibraries_FOUND}")
include(LockstepCuda)
TEXT
}
# configure OPTION...
configure() {
  status=0
  output=$("$cmake" -G Ninja -S "$folder/probe" -B "$folder/build" -DCMAKE_CXX_COMPILER=/usr/bin/c++ \
    -DLOCKSTEP_CUDA_ROOT="$folder/cuda" "$@" 2>&1 | tr '\n' ' ' | tr -s ' ') || status=$?
  rm -rf "$folder/build"
}
expect() {  # STATUS PATTERN
  [ "$status" = "$1" ] && [[ $output == $2 ]] && return
  failed=1
  printf '%s: status %s, output\n%s\nexpected status %s, output %s\n' "$case" "$status" "$output" "$1" "$2"
}

case="an older CUDA"
cuda 12040 9 'exit 0'
configure; expect 0 "*CUDA back end: OFF, because *include has CUDA 12.4, expected at least 12.5*"
configure -DLOCKSTEP_CUDA=ON; expect 1 "*LOCKSTEP_CUDA is ON, but *include has CUDA 12.4, expected at least 12.5*"
configure -DLOCKSTEP_CUDA=OFF; expect 0 "*CUDA back end: OFF *"
configure -DLOCKSTEP_CUDA=OFF -DLOCKSTEP_CUDA_EMULATION=ON; expect 1 "*LOCKSTEP_CUDA_EMULATION is ON, but *has CUDA 12.4*"

case="an older cuDNN"
cuda 13000 8 'exit 0'
configure; expect 0 "*CUDA back end: OFF, because *include has cuDNN 8, expected at least 9*"

case="a compiler that nvcc refuses"
cuda 12090 9 'echo "host_config.h:143:2: error: #error -- unsupported GNU version; try again" >&2; exit 1'
configure; expect 0 "*CUDA back end: OFF, because nvcc compiles no C++20 with /usr/bin/c++: *unsupported GNU version, try again*"
configure -DLOCKSTEP_CUDA=ON; expect 1 "*LOCKSTEP_CUDA is ON, but nvcc compiles no C++20*"

case="all fits"
cuda 12050 9 'case "$*" in "-std=c++20 "*" -ccbin /usr/bin/c++ "*) exit 0 ;; *) exit 1 ;; esac'
configure -DLOCKSTEP_CUDA=OFF -DLOCKSTEP_CUDA_EMULATION=ON; expect 0 "*found: TRUE*CUDA back end: OFF *"

case="sanitizers"
configure -DLOCKSTEP_SANITIZE=thread; expect 0 "*CUDA back end: OFF, because sanitizers*"

exit $failed
