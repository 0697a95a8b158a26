# cmake -DSOURCE_DIR=… -P check_openings.cmake: fails when a sentence of the documentation, of a comment, or of a text that
# a program prints opens with Who, Of, What, or In which. Such sentences hide their subject: "Who finds it taken backs off"
# reads better as "A thread that finds it taken backs off". Questions and headings may open so.
cmake_minimum_required(VERSION 3.25)
set(opening "(Who|Of|What|In which) [^?]*$")
set(violations "")

# check_lines(REGEX FILE...): lists the lines that match.
function(check_lines REGEX)
  foreach(file ${ARGN})
    file(STRINGS ${SOURCE_DIR}/${file} lines REGEX "${REGEX}")
    foreach(line ${lines})
      string(APPEND violations "${file}: ${line}\n")
    endforeach()
  endforeach()
  set(violations "${violations}" PARENT_SCOPE)
endfunction()

# find_files(RESULT PATTERN...): the files of SOURCE_DIR, but for those that are wrong on purpose.
function(find_files RESULT)
  list(TRANSFORM ARGN PREPEND ${SOURCE_DIR}/)
  file(GLOB_RECURSE files RELATIVE ${SOURCE_DIR} ${ARGN})
  list(FILTER files EXCLUDE REGEX "^tests/structure/wrong/")
  set(${RESULT} ${files} PARENT_SCOPE)
endfunction()

# A line that begins with # is a heading; | begins a row of a table.
find_files(pages docs/*.md)
foreach(page README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md examples/README.md)
  if(EXISTS ${SOURCE_DIR}/${page})
    list(APPEND pages ${page})
  endif()
endforeach()
check_lines("^([^#|].*[.!?:] |[-*0-9.> ]*)${opening}" ${pages})

# Comments, and strings: help, errors, and reports.
set(patterns "")
foreach(folder apps bench examples lockstep tests)
  foreach(ending h cc cu cuh inc)
    list(APPEND patterns ${folder}/*.${ending})
  endforeach()
endforeach()
find_files(sources ${patterns})
check_lines("// (.*[.!?:] )?${opening}|\"([^\"]*[.!?:;] )?(Who|Of|What|In which) [^?\"]*\"" ${sources})

# Comments and docstrings of scripts.
find_files(scripts apps/CMakeLists.txt bench/*.py bench/*.sh cmake/*.cmake examples/CMakeLists.txt lockstep/CMakeLists.txt
           scripts/* tests/*.cmake tests/CMakeLists.txt .github/*.yml)
foreach(script CMakeLists.txt Dockerfile Doxyfile run test .ci/run)
  if(EXISTS ${SOURCE_DIR}/${script})
    list(APPEND scripts ${script})
  endif()
endforeach()
check_lines("(# |\"\"\")(.*[.!?:] )?${opening}" ${scripts})

if(violations)
  message(NOTICE "${violations}")
  message(FATAL_ERROR "Sentences that open with Who, Of, What, or In which: begin with the subject")
endif()
