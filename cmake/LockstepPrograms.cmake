# lockstep_program(TARGET [INTERNALS] source...): a program with a command line, like the tool and the examples. With
# INTERNALS it uses more of the library than the public headers. Such a program spends its time in the library, so -O3
# would only double the compile time of CLI11 and JSON.
find_package(CLI11 CONFIG REQUIRED)

add_library(lockstep_program_options INTERFACE)
target_link_libraries(lockstep_program_options INTERFACE lockstep_options CLI11::CLI11 nlohmann_json::nlohmann_json)
target_compile_options(lockstep_program_options INTERFACE $<$<CONFIG:Release>:-Og>)

function(lockstep_program TARGET)
  cmake_parse_arguments(ARG "INTERNALS" "" "" ${ARGN})
  add_executable(${TARGET} ${ARG_UNPARSED_ARGUMENTS})
  if(ARG_INTERNALS AND BUILD_SHARED_LIBS)
    lockstep_link_layers(${TARGET} train models)
  else()
    target_link_libraries(${TARGET} PRIVATE Lockstep::lockstep)
  endif()
  target_link_libraries(${TARGET} PRIVATE lockstep_program_options)
endfunction()
