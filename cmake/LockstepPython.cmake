# LOCKSTEP_PYTHON decides whether the Python package (the folder python/) is built:
#   ON    built
#   OFF   omitted
#   AUTO  ON if Python's headers and pybind11 are found, otherwise OFF
# Python3_EXECUTABLE names the Python to build for.
set(LOCKSTEP_PYTHON AUTO CACHE STRING "The Python package: AUTO, ON or OFF")
set_property(CACHE LOCKSTEP_PYTHON PROPERTY STRINGS AUTO ON OFF)

set(LOCKSTEP_PYTHON_KIND OFF)
if(NOT LOCKSTEP_PYTHON MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "LOCKSTEP_PYTHON is ${LOCKSTEP_PYTHON}, expected AUTO, ON or OFF")
elseif(LOCKSTEP_PYTHON STREQUAL "ON")
  find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
  find_package(pybind11 2.10 REQUIRED)
  set(LOCKSTEP_PYTHON_KIND ON)
# The sanitizers' runtime would have to be loaded before Python, and a shared library has another place.
elseif(LOCKSTEP_PYTHON STREQUAL "AUTO" AND NOT LOCKSTEP_SANITIZE AND NOT LOCKSTEP_STATIC AND NOT CMAKE_CROSSCOMPILING)
  find_package(Python3 3.11 QUIET COMPONENTS Interpreter Development.Module)
  if(Python3_FOUND)
    find_package(pybind11 2.10 QUIET)
  endif()
  if(pybind11_FOUND)
    set(LOCKSTEP_PYTHON_KIND ON)
  endif()
endif()
message(STATUS "Python package: ${LOCKSTEP_PYTHON_KIND}")
