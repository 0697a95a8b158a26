# Finds the parts of the CUDA back end, from one release: the compiler and runtime, cuDNN, cuBLASLt, and optionally
# NCCL. They come in one folder (/usr/local/cuda, LOCKSTEP_CUDA_ROOT, CUDA_HOME, beside the nvcc on the path), or as
# Python wheels in a folder `nvidia` (of LOCKSTEP_CUDA_ROOT or of python3's site-packages) that has one folder per
# library or one for all.
#
#   CudaLibraries_NVCC     the compiler; empty if there are only libraries
#   CudaLibraries_WHY_NOT  which library is missing or too old; empty if none is. Then CudaLibraries_FOUND is true.
#   CudaLibraries::runtime, ::cudnn, ::cublasLt, ::nccl (if found); ::headers, which suffice for the emulation
#   CudaLibraries_HEADERS_WHY_NOT  the same for ::headers
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

# cuda_release(NAME FOLDER MACRO file...): the number that the first of the headers with this macro defines, 0 if none does.
function(cuda_release NAME FOLDER MACRO)
  set(${NAME} 0 PARENT_SCOPE)
  foreach(header ${ARGN})
    if(EXISTS ${FOLDER}/${header})
      file(STRINGS ${FOLDER}/${header} line REGEX "^#[ \t]*define[ \t]+${MACRO}[ \t]+[0-9]+")
      if(line MATCHES "${MACRO}[ \t]+([0-9]+)")
        set(${NAME} ${CMAKE_MATCH_1} PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
endfunction()

# CUDA 12.5 brought cudaGetDriverEntryPointByVersion. cuDNN 9 has other status codes than cuDNN 8.
set(CudaLibraries_HEADERS_WHY_NOT "")
if(NOT CudaLibraries_runtime_INCLUDE_DIR)
  set(CudaLibraries_HEADERS_WHY_NOT "CUDA's cuda_runtime.h is not found; set LOCKSTEP_CUDA_ROOT")
elseif(NOT CudaLibraries_cudnn_INCLUDE_DIR)
  set(CudaLibraries_HEADERS_WHY_NOT "cuDNN's cudnn.h is not found; set LOCKSTEP_CUDA_ROOT")
else()
  cuda_release(runtime_version ${CudaLibraries_runtime_INCLUDE_DIR} CUDART_VERSION cuda_runtime_api.h)
  cuda_release(cudnn_version ${CudaLibraries_cudnn_INCLUDE_DIR} CUDNN_MAJOR cudnn_version.h cudnn.h)
  if(runtime_version LESS 12050)
    math(EXPR major "${runtime_version} / 1000")
    math(EXPR minor "${runtime_version} % 1000 / 10")
    set(CudaLibraries_HEADERS_WHY_NOT
      "${CudaLibraries_runtime_INCLUDE_DIR} has CUDA ${major}.${minor}, expected at least 12.5")
  elseif(cudnn_version LESS 9)
    set(CudaLibraries_HEADERS_WHY_NOT
      "${CudaLibraries_cudnn_INCLUDE_DIR} has cuDNN ${cudnn_version}, expected at least 9")
  endif()
endif()

set(CudaLibraries_WHY_NOT "${CudaLibraries_HEADERS_WHY_NOT}")
if(NOT CudaLibraries_WHY_NOT)
  foreach(name runtime cudnn cublasLt)
    if(NOT CudaLibraries_${name}_LIBRARY OR NOT CudaLibraries_${name}_INCLUDE_DIR)
      set(CudaLibraries_WHY_NOT "CUDA's library ${name} is not found; set LOCKSTEP_CUDA_ROOT")
    endif()
  endforeach()
endif()
set(CudaLibraries_FOUND TRUE)
if(CudaLibraries_WHY_NOT)
  set(CudaLibraries_FOUND FALSE)
  if(CudaLibraries_FIND_REQUIRED)
    message(FATAL_ERROR "CudaLibraries: ${CudaLibraries_WHY_NOT}")
  endif()
endif()

# For scripts, which read the cache.
set(CudaLibraries_HEADERS ON CACHE INTERNAL "")
if(CudaLibraries_HEADERS_WHY_NOT)
  set(CudaLibraries_HEADERS OFF CACHE INTERNAL "")
endif()

# SYSTEM, because their headers cause warnings.
if(NOT CudaLibraries_HEADERS_WHY_NOT AND NOT TARGET CudaLibraries::headers)
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
