# lockstep_program(TARGET source...): a program with a command line, like the tool and the examples. Such a program
# spends its time in the library, so -O3 would only double the compile time of CLI11 and JSON.
find_package(CLI11 CONFIG REQUIRED)

add_library(lockstep_program_options INTERFACE)
target_link_libraries(lockstep_program_options INTERFACE lockstep_options CLI11::CLI11 nlohmann_json::nlohmann_json)
target_compile_options(lockstep_program_options INTERFACE $<$<CONFIG:Release>:-O1>)

function(lockstep_program TARGET)
  add_executable(${TARGET} ${ARGN})
  target_link_libraries(${TARGET} PRIVATE Lockstep::lockstep lockstep_program_options)
endfunction()
