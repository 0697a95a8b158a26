# lockstep_layer(NAME [USES layer...] [LIBRARIES target...]): one object library per folder of lockstep/, made of
# every .cc file below it. USES names the layers that it may include; those propagate.
add_library(lockstep_flags INTERFACE)
target_include_directories(lockstep_flags INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:include>)
target_compile_features(lockstep_flags INTERFACE cxx_std_20)

add_library(lockstep_warnings INTERFACE)
# No contraction of a * b + c: the same bits whichever instructions the compiler may use.
target_compile_options(lockstep_warnings INTERFACE -Wall -Wextra -Wpedantic -ffp-contract=off)
if(LOCKSTEP_SANITIZE)
  add_compile_options(-fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${LOCKSTEP_SANITIZE})
endif()

function(lockstep_layer NAME)
  cmake_parse_arguments(ARG "" "" "USES;LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${NAME}/*.cc)
  add_library(lockstep_${NAME} OBJECT ${sources})
  target_link_libraries(lockstep_${NAME} PUBLIC lockstep_flags fmt::fmt ${ARG_LIBRARIES}
                        PRIVATE $<BUILD_INTERFACE:lockstep_warnings>)
  foreach(layer ${ARG_USES})
    target_link_libraries(lockstep_${NAME} PUBLIC lockstep_${layer})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY LOCKSTEP_LAYERS ${NAME})
endfunction()
