# cmake -DSOURCE_DIR=… [-DMOST=…] -P check_lengths.cmake: fails when a source file has more than MOST (400) lines. The files
# named below are still longer: split them, and take them off the list. A file that no longer needs its place there fails, too.
cmake_minimum_required(VERSION 3.25)
if(NOT DEFINED MOST)
  set(MOST 400)
endif()
set(too_long
    tests/backend/onednn_test.cc
    tests/cli/train_test.cc
    tests/parallel/distributed_data_parallel_test.cc
    )
set(patterns "")
foreach(folder apps bench examples lockstep tests)
  foreach(ending h cc cu)
    list(APPEND patterns ${SOURCE_DIR}/${folder}/*.${ending})
  endforeach()
endforeach()
file(GLOB_RECURSE files RELATIVE ${SOURCE_DIR} ${patterns})
set(violations "")
foreach(file ${files})
  file(READ ${SOURCE_DIR}/${file} text)
  string(REGEX MATCHALL "\n" ends "${text}")
  list(LENGTH ends lines)
  if(lines GREATER MOST AND NOT file IN_LIST too_long)
    string(APPEND violations "${file}: ${lines} lines, expected at most ${MOST}\n")
  elseif(NOT lines GREATER MOST AND file IN_LIST too_long)
    string(APPEND violations "${file}: ${lines} lines: take it off the list in check_lengths.cmake\n")
  endif()
endforeach()
if(violations)
  message(NOTICE "${violations}")
  message(FATAL_ERROR "Files that are too long to read")
endif()
