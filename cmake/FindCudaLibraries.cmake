# Finds the parts of the CUDA back end, from one release: the compiler and runtime, cuDNN, cuBLASLt, and optionally
# NCCL. They come in one folder (/usr/local/cuda, LOCKSTEP_CUDA_ROOT, CUDA_HOME, beside the nvcc on the path), or as
# Python wheels in a folder `nvidia` (of LOCKSTEP_CUDA_ROOT or of python3's site-packages) that has one folder per
# library or one for all.
#
#   CudaLibraries_NVCC     the compiler; empty if there are only libraries
#   CudaLibraries::runtime, ::cudnn, ::cublasLt, ::nccl (if found); ::headers, which suffice for the emulation
set(LOCKSTEP_CUDA_ROOT "" CACHE PATH "The location of CUDA: a toolkit's folder, or one with Python's nvidia/ wheels")

set(roots ${LOCKSTEP_CUDA_ROOT} ${LOCKSTEP_CUDA_ROOT}/nvidia $ENV{CUDA_HOME} $ENV{CUDA_PATH})
find_program(CudaLibraries_NVCC nvcc HINTS ${roots} PATHS /usr/local/cuda PATH_SUFFIXES bin cu13/bin cuda_nvcc/bin)
if(CudaLibraries_NVCC)
  file(REAL_PATH ${CudaLibraries_NVCC} nvcc)
  cmake_path(GET nvcc PARENT_PATH folder)
  cmake_path(GET folder PARENT_PATH folder)
  list(APPEND roots ${folder})
endif()
list(APPEND roots /usr/local/cuda)
if(NOT DEFINED CudaLibraries_WHEELS)
  set(wheels "")
  find_program(CudaLibraries_PYTHON python3)
  if(CudaLibraries_PYTHON)
    execute_process(COMMAND ${CudaLibraries_PYTHON} -c
      "import os, sys; print(';'.join(p + '/nvidia' for p in sys.path if os.path.isdir(p + '/nvidia')), end='')"
      OUTPUT_VARIABLE wheels ERROR_QUIET)
  endif()
  set(CudaLibraries_WHEELS "${wheels}" CACHE INTERNAL "")
endif()
list(APPEND roots ${CudaLibraries_WHEELS})

set(parts cu13 cuda_runtime cudnn cublas nccl)
set(header_suffixes include)
set(library_suffixes lib64 lib lib/x86_64-linux-gnu lib/aarch64-linux-gnu)
foreach(part ${parts})
  list(APPEND header_suffixes ${part}/include)
  list(APPEND library_suffixes ${part}/lib)
endforeach()

# Wheels have no libcudnn.so, only libcudnn.so.9.
foreach(item "runtime cuda_runtime.h cudart libcudart.so.13" "cudnn cudnn.h cudnn libcudnn.so.9"
             "cublasLt cublasLt.h cublasLt libcublasLt.so.13" "nccl nccl.h nccl libnccl.so.2")
  separate_arguments(item)
  list(GET item 0 name)
  list(GET item 1 header)
  list(SUBLIST item 2 2 files)
  find_path(CudaLibraries_${name}_INCLUDE_DIR ${header} HINTS ${roots} PATH_SUFFIXES ${header_suffixes})
  find_library(CudaLibraries_${name}_LIBRARY NAMES ${files} HINTS ${roots} PATH_SUFFIXES ${library_suffixes})
  mark_as_advanced(CudaLibraries_${name}_INCLUDE_DIR CudaLibraries_${name}_LIBRARY)
  if(CudaLibraries_${name}_INCLUDE_DIR)
    list(APPEND CudaLibraries_INCLUDE_DIRS ${CudaLibraries_${name}_INCLUDE_DIR})
  endif()
endforeach()
mark_as_advanced(CudaLibraries_NVCC CudaLibraries_PYTHON)
list(REMOVE_DUPLICATES CudaLibraries_INCLUDE_DIRS)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CudaLibraries REQUIRED_VARS
  CudaLibraries_runtime_LIBRARY CudaLibraries_runtime_INCLUDE_DIR CudaLibraries_cudnn_LIBRARY
  CudaLibraries_cudnn_INCLUDE_DIR CudaLibraries_cublasLt_LIBRARY CudaLibraries_cublasLt_INCLUDE_DIR)
# SYSTEM, because their headers cause warnings.
if(CudaLibraries_runtime_INCLUDE_DIR AND CudaLibraries_cudnn_INCLUDE_DIR AND NOT TARGET CudaLibraries::headers)
  add_library(CudaLibraries::headers INTERFACE IMPORTED)
  target_include_directories(CudaLibraries::headers SYSTEM INTERFACE ${CudaLibraries_INCLUDE_DIRS})
endif()
if(CudaLibraries_FOUND)
  foreach(name runtime cudnn cublasLt nccl)
    if(CudaLibraries_${name}_LIBRARY AND CudaLibraries_${name}_INCLUDE_DIR AND NOT TARGET CudaLibraries::${name})
      add_library(CudaLibraries::${name} UNKNOWN IMPORTED)
      set_target_properties(CudaLibraries::${name} PROPERTIES IMPORTED_LOCATION ${CudaLibraries_${name}_LIBRARY})
      target_link_libraries(CudaLibraries::${name} INTERFACE CudaLibraries::headers)
    endif()
  endforeach()
endif()
