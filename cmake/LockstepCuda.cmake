# LOCKSTEP_CUDA decides what becomes of the CUDA back end, the folders `cuda` of the layers:
#   ON    compiled by nvcc; the binary needs the libraries to start, but neither a GPU nor a driver
#   OFF   left out; the files no_cuda.cc stand in for it
#   AUTO  ON where compiler and libraries are found and new enough, else OFF, with the reason
# LOCKSTEP_CUDA_LIBRARIES is what these files are compiled and linked with.
# LOCKSTEP_CUDA_EMULATION also compiles them by the C++ compiler, for tests that run them on the CPU (tests/cuda_emulator).
set(LOCKSTEP_CUDA AUTO CACHE STRING "The CUDA back end: AUTO, ON or OFF")
set_property(CACHE LOCKSTEP_CUDA PROPERTY STRINGS AUTO ON OFF)
option(LOCKSTEP_CUDA_EMULATION "Build tests that run the CUDA back end on the CPU; needs CUDA's headers" OFF)
set(LOCKSTEP_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "GPUs to compile for; one without -real brings PTX for later ones")

# Sets NAME to the reason why nvcc cannot compile the back end; empty if it can. nvcc refuses host compilers that are newer
# than it, and knows C++20 since release 12. The answer is kept as long as the two compilers stay the same.
function(lockstep_why_no_nvcc NAME)
  set(${NAME} "there is no nvcc; set LOCKSTEP_CUDA_ROOT" PARENT_SCOPE)
  if(NOT CudaLibraries_NVCC)
    return()
  endif()
  file(TIMESTAMP ${CudaLibraries_NVCC} installed)
  set(compilers "${CudaLibraries_NVCC} ${installed} ${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_VERSION}")
  if(NOT LOCKSTEP_CUDA_PROBED STREQUAL compilers)
    set(probe ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/cuda_probe)
    file(WRITE ${probe}.cu "#include <concepts>\n#include <string>\ntemplate <std::integral T>\n__global__ void set(T* p) { *p = 1; }\n"
                           "template __global__ void set<int>(int*);\n")
    execute_process(
      COMMAND ${CudaLibraries_NVCC} -std=c++20 -arch=sm_80 -ccbin ${CMAKE_CXX_COMPILER} -c ${probe}.cu -o ${probe}.o
      RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_VARIABLE output)
    set(why "")
    if(failed)
      string(REGEX MATCH "[^\n]*(error|fatal)[^\n]*" reason "${output}")
      string(REPLACE ";" "," reason "${reason}")
      string(STRIP "${reason}" reason)
      set(why "nvcc compiles no C++20 with ${CMAKE_CXX_COMPILER}: ${reason}")
    endif()
    set(LOCKSTEP_CUDA_PROBED "${compilers}" CACHE INTERNAL "")
    set(LOCKSTEP_CUDA_PROBE "${why}" CACHE INTERNAL "")
  endif()
  set(${NAME} "${LOCKSTEP_CUDA_PROBE}" PARENT_SCOPE)
endfunction()

set(LOCKSTEP_CUDA_KIND ${LOCKSTEP_CUDA})
set(why "")
if(NOT LOCKSTEP_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "LOCKSTEP_CUDA is ${LOCKSTEP_CUDA}, expected AUTO, ON or OFF")
elseif(LOCKSTEP_CUDA STREQUAL "AUTO" AND LOCKSTEP_SANITIZE)
  set(LOCKSTEP_CUDA_KIND OFF)
  set(why ", because sanitizers do not see device code")
elseif(NOT LOCKSTEP_CUDA STREQUAL "OFF")
  find_package(CudaLibraries QUIET)
  set(LOCKSTEP_CUDA_KIND ON)
  set(why_not "${CudaLibraries_WHY_NOT}")
  if(NOT why_not)
    lockstep_why_no_nvcc(why_not)
  endif()
  if(why_not AND LOCKSTEP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "LOCKSTEP_CUDA is ON, but ${why_not}")
  elseif(why_not)
    set(LOCKSTEP_CUDA_KIND OFF)
    set(why ", because ${why_not}")
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
  # Equal bytes from every folder: nvcc puts its process id into the name of a file, which is a symbol. It also puts a hash
  # of the path into what an anonymous namespace has, so that device code has named ones (structure.device_code).
  list(APPEND CMAKE_CUDA_COMPILE_OBJECT "${CMAKE_OBJCOPY} --wildcard --strip-symbol=tmpxft_* <OBJECT>")
  # cuBLASLt and NCCL are loaded when they are first called; see backend/cuda/cublas_lt_library.cc, comm/cuda/nccl_library.cc.
  set(LOCKSTEP_CUDA_LIBRARIES CudaLibraries::runtime CudaLibraries::cudnn ${CMAKE_DL_LIBS})
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)  # the libraries need not be where the system looks
endif()
if(LOCKSTEP_CUDA_EMULATION)
  find_package(CudaLibraries QUIET)
  if(CudaLibraries_HEADERS_WHY_NOT)
    message(FATAL_ERROR "LOCKSTEP_CUDA_EMULATION is ON, but ${CudaLibraries_HEADERS_WHY_NOT}")
  endif()
endif()
message(STATUS "CUDA back end: ${LOCKSTEP_CUDA_KIND}${why}")
