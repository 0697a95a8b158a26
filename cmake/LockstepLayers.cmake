# lockstep_layer(NAME [COLD] [USES layer...] [LIBRARIES target...]): one object library per folder of lockstep/, made of
# every .cc file below it; what is in a folder `cuda`, and .cu files, only where the CUDA back end is (LockstepCuda.cmake),
# no_cuda.cc only where it is not. The same holds for oneDNN (onednn_*) and MPI (folder `mpi`). USES names the
# layers right below it; it may include those and what they use in turn.
# COLD: nothing in it takes time, and what it includes takes the compiler long to optimize.
# The property LOCKSTEP_USES lists the layers that a layer may use, itself included; a test checks the includes against it.
add_library(lockstep_flags INTERFACE)
target_include_directories(lockstep_flags INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
target_compile_features(lockstep_flags INTERFACE cxx_std_20)

add_library(lockstep_options INTERFACE)
# Options are structs with designated initializers: naming only some members is their use. g++ 12 suspects every
# concatenation of strings (GCC bug 105651).
# These options are for C++; for CUDA see LockstepCuda.cmake.
set(options -Wall -Wextra -Wpedantic -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND options -Wno-restrict)
endif()
# Types of a file's own are its own where several files are compiled at once, too.
if(LOCKSTEP_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(lockstep_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()
# No contraction of a * b + c: the same bits whichever instructions the compiler may use. Nobody reads errno or
# floating-point traps: without them square roots and conditions become vector instructions.
list(APPEND options -ffp-contract=off -fno-math-errno -fno-trapping-math)
target_compile_options(lockstep_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${options}>")

function(lockstep_layer NAME)
  cmake_parse_arguments(ARG "COLD" "" "USES;LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${NAME}/*.cc)
  file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${NAME}/cuda/*.cu)
  if(LOCKSTEP_CUDA_KIND STREQUAL "OFF")
    list(FILTER sources EXCLUDE REGEX "/cuda/[^/]*$")
    set(cuda_sources "")
  else()
    list(FILTER sources EXCLUDE REGEX "/no_cuda.cc$")
    if(LOCKSTEP_CUDA_KIND STREQUAL "ON")
      set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/backend/cuda/cublas_lt_library.cc PROPERTIES
        COMPILE_DEFINITIONS "LOCKSTEP_CUBLAS_LT=\"${CudaLibraries_cublasLt_LIBRARY}\"")
      set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/comm/cuda/nccl_library.cc PROPERTIES
        COMPILE_DEFINITIONS "LOCKSTEP_NCCL=\"${CudaLibraries_nccl_LIBRARY}\"")
    else()
      # g++ 12, when it makes vector instructions of pairs of numbers, leaves out roundings from double to float and back.
      set_source_files_properties(${cuda_sources} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-fno-tree-slp-vectorize;-Wno-maybe-uninitialized")
    endif()
  endif()
  list(APPEND sources ${cuda_sources})
  if(LOCKSTEP_ONEDNN)
    list(FILTER sources EXCLUDE REGEX "/no_onednn.cc$")
  else()
    list(FILTER sources EXCLUDE REGEX "/onednn_[^/]*$")
  endif()
  if(LOCKSTEP_MPI_KIND)
    list(FILTER sources EXCLUDE REGEX "/no_mpi.cc$")
  else()
    list(FILTER sources EXCLUDE REGEX "/mpi/[^/]*$")
  endif()
  if(NOT sources)  # headers alone
    file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/empty.cc CONTENT "")
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/empty.cc)
  endif()
  add_library(lockstep_${NAME} OBJECT ${sources})
  target_link_libraries(lockstep_${NAME} PUBLIC lockstep_flags fmt::fmt ${ARG_LIBRARIES} PRIVATE lockstep_options)
  if(ARG_COLD)
    target_compile_options(lockstep_${NAME} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  set(closure ${NAME})
  foreach(layer ${ARG_USES})
    get_target_property(below lockstep_${layer} LOCKSTEP_USES)
    list(APPEND closure ${below})
  endforeach()
  list(REMOVE_DUPLICATES closure)
  set_target_properties(lockstep_${NAME} PROPERTIES LOCKSTEP_USES "${closure}" LOCKSTEP_LIBRARIES "${ARG_LIBRARIES}"
                                                 UNITY_BUILD ${LOCKSTEP_UNITY} UNITY_BUILD_BATCH_SIZE 16
                                                 CXX_VISIBILITY_PRESET hidden)  # see base/export.h
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_LAYERS ${NAME})
endfunction()

# lockstep_link_layers(TARGET layer...): links the target with these layers and all that they use, and nothing above.
function(lockstep_link_layers TARGET)
  set(layers "")
  foreach(layer ${ARGN})
    get_target_property(closure lockstep_${layer} LOCKSTEP_USES)
    list(APPEND layers ${closure})
  endforeach()
  list(REMOVE_DUPLICATES layers)
  list(TRANSFORM layers PREPEND lockstep_)
  target_link_libraries(${TARGET} PRIVATE ${layers})
endfunction()
