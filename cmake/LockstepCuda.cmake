# LOCKSTEP_CUDA decides what becomes of the CUDA back end, the folders `cuda` of the layers:
#   ON    compiled by nvcc; the binary needs the libraries to start, but neither a GPU nor a driver
#   OFF   left out; the files no_cuda.cc stand in for it
#   AUTO  ON where compiler and libraries are found, else OFF
# LOCKSTEP_CUDA_LIBRARIES is what these files are compiled and linked with.
# LOCKSTEP_CUDA_EMULATION also compiles them by the C++ compiler, for tests that run them on the CPU (tests/cuda_emulator).
set(LOCKSTEP_CUDA AUTO CACHE STRING "The CUDA back end: AUTO, ON or OFF")
set_property(CACHE LOCKSTEP_CUDA PROPERTY STRINGS AUTO ON OFF)
option(LOCKSTEP_CUDA_EMULATION "Build tests that run the CUDA back end on the CPU; needs CUDA's headers" OFF)
set(LOCKSTEP_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "GPUs to compile for; one without -real brings PTX for later ones")

set(LOCKSTEP_CUDA_KIND ${LOCKSTEP_CUDA})
if(NOT LOCKSTEP_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "LOCKSTEP_CUDA is ${LOCKSTEP_CUDA}, expected AUTO, ON or OFF")
elseif(LOCKSTEP_CUDA STREQUAL "AUTO")
  find_package(CudaLibraries QUIET)
  set(LOCKSTEP_CUDA_KIND OFF)
  if(CudaLibraries_FOUND AND CudaLibraries_NVCC AND NOT LOCKSTEP_SANITIZE)
    set(LOCKSTEP_CUDA_KIND ON)
  endif()
elseif(LOCKSTEP_CUDA STREQUAL "ON")
  find_package(CudaLibraries REQUIRED)
  if(NOT CudaLibraries_NVCC)
    message(FATAL_ERROR "LOCKSTEP_CUDA is ON, but there is no nvcc: set LOCKSTEP_CUDA_ROOT")
  endif()
endif()

set(LOCKSTEP_CUDA_LIBRARIES "")
if(LOCKSTEP_CUDA_KIND STREQUAL "ON")
  set(CMAKE_CUDA_COMPILER ${CudaLibraries_NVCC} CACHE FILEPATH "")
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER} CACHE FILEPATH "")
  set(CMAKE_CUDA_ARCHITECTURES ${LOCKSTEP_CUDA_ARCHITECTURES})
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # CudaLibraries::runtime is the one and only
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # nvcc can since 12, CMake 3.25 does not know
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  # As in C++: a * b + c rounds twice, whatever the compiler may use.
  # fmt thinks that nvcc knows no constexpr, and then fails for using consteval.
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:-DFMT_USE_CONSTEXPR=1;-fmad=false;--expt-relaxed-constexpr;-Xcompiler=-Wall,-Wextra>")
  # cuBLASLt and NCCL are loaded when they are first called; see backend/cuda/cublas_lt_library.cc, comm/cuda/nccl_library.cc.
  set(LOCKSTEP_CUDA_LIBRARIES CudaLibraries::runtime CudaLibraries::cudnn ${CMAKE_DL_LIBS})
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)  # the libraries need not be where the system looks
endif()
if(LOCKSTEP_CUDA_EMULATION)
  find_package(CudaLibraries QUIET)
  if(NOT TARGET CudaLibraries::headers)
    message(FATAL_ERROR "LOCKSTEP_CUDA_EMULATION is ON, but CUDA's headers are not found: set LOCKSTEP_CUDA_ROOT")
  endif()
endif()
message(STATUS "CUDA back end: ${LOCKSTEP_CUDA_KIND}")
