# lockstep_layer(NAME [COLD] [USES layer...] [LIBRARIES target...]): two object libraries per folder of lockstep/, made of every
# .cc file below it. lockstep_NAME is the same with and without CUDA. lockstep_NAME_cuda is the folder `cuda` with its .cu files
# where the CUDA back end is (LockstepCuda.cmake), else no_cuda.cc. oneDNN (onednn_*, no_onednn.cc) and MPI (folder `mpi`,
# no_mpi.cc) are chosen in the same way, and so are hwloc (hwloc_*, no_hwloc.cc), and signatures (openssl_*; no_signature.cc in static builds). USES names the layers right below it; it may include those and what they use in turn.
# COLD: not performance-critical, but slow to optimize; compiled with -O1.
# With LOCKSTEP_OTHER_LAYERS, the layers outside LOCKSTEP_SANITIZED_LAYERS are the objects of that build, which has a file
# with their names for each layer.
# The property LOCKSTEP_USES lists the layers that a layer may use, itself included, and LOCKSTEP_DIRECT_USES those right
# below it; a test checks the includes against both.
# The global property LOCKSTEP_CUDA_LAYERS lists the layers that have a part for CUDA.
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
# Unity builds put anonymous-namespace types of several files into one unit; g++ warns about that.
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
  list(FILTER sources EXCLUDE REGEX "/cuda/[^/]*$|/no_cuda.cc$")
  if(LOCKSTEP_ONEDNN)
    list(FILTER sources EXCLUDE REGEX "/no_onednn.cc$")
  else()
    list(FILTER sources EXCLUDE REGEX "/onednn_[^/]*$")
  endif()
  if(LOCKSTEP_HWLOC)
    list(FILTER sources EXCLUDE REGEX "/no_hwloc.cc$")
  else()
    list(FILTER sources EXCLUDE REGEX "/hwloc_[^/]*$")
  endif()
  if(LOCKSTEP_STATIC)
    list(FILTER sources EXCLUDE REGEX "/openssl_[^/]*$")
  else()
    list(FILTER sources EXCLUDE REGEX "/no_signature.cc$")
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
  set(objects ${LOCKSTEP_OTHER_LAYERS}/layers/${NAME}.txt)
  if(LOCKSTEP_OTHER_LAYERS AND NOT NAME IN_LIST LOCKSTEP_SANITIZED_LAYERS)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${objects})
    file(READ ${objects} objects)
    add_library(lockstep_${NAME} OBJECT IMPORTED GLOBAL)
    set_target_properties(lockstep_${NAME} PROPERTIES IMPORTED_OBJECTS "${objects}")
    target_link_libraries(lockstep_${NAME} INTERFACE lockstep_flags ${LOCKSTEP_FMT} ${ARG_LIBRARIES})
  else()
    add_library(lockstep_${NAME} OBJECT ${sources})
    target_link_libraries(lockstep_${NAME} PUBLIC lockstep_flags ${LOCKSTEP_FMT} ${ARG_LIBRARIES} PRIVATE lockstep_options)
    file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/layers/${NAME}.txt CONTENT "$<TARGET_OBJECTS:lockstep_${NAME}>")
    if(ARG_COLD)
      target_compile_options(lockstep_${NAME} PRIVATE $<$<CONFIG:Release>:-O1>)
    endif()
  endif()
  set(closure ${NAME})
  foreach(layer ${ARG_USES})
    get_target_property(below lockstep_${layer} LOCKSTEP_USES)
    list(APPEND closure ${below})
  endforeach()
  list(REMOVE_DUPLICATES closure)
  set_target_properties(lockstep_${NAME} PROPERTIES LOCKSTEP_USES "${closure}" LOCKSTEP_DIRECT_USES "${ARG_USES}"
                                                 LOCKSTEP_LIBRARIES "${ARG_LIBRARIES}"
                                                 UNITY_BUILD ${LOCKSTEP_UNITY} UNITY_BUILD_BATCH_SIZE 16
                                                 CXX_VISIBILITY_PRESET hidden)  # see base/export.h
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_LAYERS ${NAME})

  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${NAME}/no_cuda.cc)
    set_property(GLOBAL APPEND PROPERTY LOCKSTEP_CUDA_LAYERS ${NAME})
    if(LOCKSTEP_CUDA_KIND STREQUAL "ON")
      lockstep_cuda_objects(${NAME} lockstep_${NAME}_cuda)
      set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/backend/cuda/cublas_lt_library.cc PROPERTIES
        COMPILE_DEFINITIONS "LOCKSTEP_CUBLAS_LT=\"${CudaLibraries_cublasLt_LIBRARY}\"")
      set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/comm/cuda/nccl_library.cc PROPERTIES
        COMPILE_DEFINITIONS "LOCKSTEP_NCCL=\"${CudaLibraries_nccl_LIBRARY}\"")
    else()
      add_library(lockstep_${NAME}_cuda OBJECT ${NAME}/no_cuda.cc)
    endif()
    set_target_properties(lockstep_${NAME}_cuda PROPERTIES CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden)
    target_link_libraries(lockstep_${NAME}_cuda PUBLIC lockstep_flags ${LOCKSTEP_FMT} ${ARG_LIBRARIES} ${LOCKSTEP_CUDA_LIBRARIES}
                                                PRIVATE lockstep_options)
  endif()
endfunction()

# lockstep_cuda_objects(NAME TARGET): an object library of the folder `cuda` of layer NAME.
function(lockstep_cuda_objects NAME TARGET)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/lockstep/${NAME}/cuda/*.cc ${PROJECT_SOURCE_DIR}/lockstep/${NAME}/cuda/*.cu)
  add_library(${TARGET} OBJECT ${sources})
  set_target_properties(${TARGET} PROPERTIES UNITY_BUILD ${LOCKSTEP_UNITY} UNITY_BUILD_BATCH_SIZE 8)
endfunction()

# lockstep_link_layers(TARGET [EMULATED] layer...): links the target with these layers and all that they use, and nothing above.
# EMULATED: their parts for CUDA are those of tests/cuda_emulator.
function(lockstep_link_layers TARGET)
  cmake_parse_arguments(ARG "EMULATED" "" "" ${ARGN})
  set(layers "")
  foreach(layer ${ARG_UNPARSED_ARGUMENTS})
    get_target_property(closure lockstep_${layer} LOCKSTEP_USES)
    list(APPEND layers ${closure})
  endforeach()
  list(REMOVE_DUPLICATES layers)
  get_property(cuda_layers GLOBAL PROPERTY LOCKSTEP_CUDA_LAYERS)
  foreach(layer ${layers})
    target_link_libraries(${TARGET} PRIVATE lockstep_${layer})
    if(layer IN_LIST cuda_layers)
      target_link_libraries(${TARGET} PRIVATE lockstep_${layer}_$<IF:$<BOOL:${ARG_EMULATED}>,emulated,cuda>)
    endif()
  endforeach()
endfunction()
