# cmake -DSOURCE_DIR=… [-DMOST=…] -P check_exports.cmake: checks the public headers, which lockstep/lockstep.h names. Fails when
#   one of them opens `namespace lockstep` without LOCKSTEP_API: a shared library would keep what it declares to itself;
#   another header opens it with LOCKSTEP_API;
#   one of them includes a header that lockstep.h does not name: it is not installed;
#   there are more than MOST (61) of them, lockstep.h included. Before you raise that number, look for a concept that has two
#   headers, and for a declaration that could replace an include.
cmake_minimum_required(VERSION 3.25)
if(NOT DEFINED MOST)
  set(MOST 61)
endif()

# The headers of Lockstep that `file` includes.
function(included_by file result)
  file(STRINGS ${SOURCE_DIR}/${file} lines REGEX "^#include \"lockstep/")
  list(TRANSFORM lines REPLACE "^#include \"([^\"]*)\".*" "\\1")
  set(${result} ${lines} PARENT_SCOPE)
endfunction()

set(violations "")
included_by(lockstep/lockstep.h headers)
list(LENGTH headers count)
math(EXPR count "${count} + 1")
if(count GREATER MOST)
  string(APPEND violations "lockstep/lockstep.h: ${count} public headers, expected at most ${MOST}\n")
endif()
foreach(header ${headers})
  file(STRINGS ${SOURCE_DIR}/${header} hidden REGEX "^namespace lockstep {")
  if(hidden)
    string(APPEND violations "${header}: namespace lockstep without LOCKSTEP_API\n")
  endif()
  included_by(${header} others)
  foreach(other ${others})
    if(NOT other IN_LIST headers)
      string(APPEND violations "${header}: includes ${other}, which lockstep/lockstep.h does not name\n")
    endif()
  endforeach()
endforeach()
file(GLOB_RECURSE all RELATIVE ${SOURCE_DIR} ${SOURCE_DIR}/lockstep/*.h)
foreach(header ${all})
  file(STRINGS ${SOURCE_DIR}/${header} exported REGEX "^namespace LOCKSTEP_API ")
  if(exported AND NOT header IN_LIST headers)
    string(APPEND violations "${header}: LOCKSTEP_API, but lockstep/lockstep.h does not name it\n")
  endif()
endforeach()
if(violations)
  message(NOTICE "${violations}")
  message(FATAL_ERROR "Public headers that are not in order")
endif()
