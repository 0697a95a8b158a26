# LOCKSTEP_STATIC links every program statically, those of the installed package too: they need no other file to run.
# The parts whose libraries have no archives, or load others at run time, are left out. This file comes first, because
# it decides how libraries are found.
option(LOCKSTEP_STATIC "Link programs statically, without oneDNN, MPI, hwloc, and CUDA" OFF)
if(NOT LOCKSTEP_STATIC)
  return()
endif()
foreach(option LOCKSTEP_ONEDNN LOCKSTEP_MPI LOCKSTEP_HWLOC LOCKSTEP_CUDA BUILD_SHARED_LIBS)
  set(${option} OFF CACHE STRING "")
  if(NOT ${option} STREQUAL "OFF")
    message(FATAL_ERROR "LOCKSTEP_STATIC is ON, but ${option} is ${${option}}, expected OFF")
  endif()
endforeach()
set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
set(OPENSSL_USE_STATIC_LIBS ON)
# What a program does not call is left out of it.
add_compile_options(-ffunction-sections -fdata-sections)
set(LOCKSTEP_STATIC_LINK_OPTIONS -static -Wl,--gc-sections)
add_link_options(${LOCKSTEP_STATIC_LINK_OPTIONS})
