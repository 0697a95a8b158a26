# LOCKSTEP_MPI decides whether the back end "mpi" between ranks (the folder comm/mpi) is built:
#   ON    compiled and linked with MPI's library
#   OFF   omitted; comm/no_mpi.cc replaces it
#   AUTO  ON if MPI is found, otherwise OFF
# LOCKSTEP_MPI_LIBRARIES lists the libraries to link.
set(LOCKSTEP_MPI AUTO CACHE STRING "The back end of MPI: AUTO, ON or OFF")
set_property(CACHE LOCKSTEP_MPI PROPERTY STRINGS AUTO ON OFF)

set(LOCKSTEP_MPI_KIND OFF)
set(LOCKSTEP_MPI_LIBRARIES "")
set(MPI_CXX_SKIP_MPICXX TRUE)  # the C++ bindings that MPI has removed
if(NOT LOCKSTEP_MPI MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "LOCKSTEP_MPI is ${LOCKSTEP_MPI}, expected AUTO, ON or OFF")
elseif(LOCKSTEP_MPI STREQUAL "AUTO")
  find_package(MPI QUIET COMPONENTS CXX)
elseif(LOCKSTEP_MPI STREQUAL "ON")
  find_package(MPI REQUIRED COMPONENTS CXX)
endif()
if(MPI_CXX_FOUND AND NOT LOCKSTEP_MPI STREQUAL "OFF")
  set(LOCKSTEP_MPI_KIND ON)
  set(LOCKSTEP_MPI_LIBRARIES MPI::MPI_CXX)
endif()
message(STATUS "MPI: ${LOCKSTEP_MPI_KIND}")
