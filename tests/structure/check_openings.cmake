# cmake -DSOURCE_DIR=… -P check_openings.cmake: fails when a sentence of the documentation, or of a comment in the code, opens
# with Who, Of, What, or In which. Such sentences hide their subject: "Who finds it taken backs off" reads better as "A
# thread that finds it taken backs off". Questions and headings may open so.
cmake_minimum_required(VERSION 3.25)
set(opening "(Who|Of|What|In which) [^?]*$")
set(violations "")

file(GLOB_RECURSE pages RELATIVE ${SOURCE_DIR} ${SOURCE_DIR}/docs/*.md)
foreach(page README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md examples/README.md ${pages})
  if(EXISTS ${SOURCE_DIR}/${page})
    # A line that begins with # is a heading; | begins a row of a table.
    file(STRINGS ${SOURCE_DIR}/${page} lines REGEX "^([^#|].*[.!?:] |[-*0-9.> ]*)${opening}")
    foreach(line ${lines})
      string(APPEND violations "${page}: ${line}\n")
    endforeach()
  endif()
endforeach()

set(patterns "")
foreach(folder apps bench examples lockstep tests)
  foreach(ending h cc cu cuh inc)
    list(APPEND patterns ${SOURCE_DIR}/${folder}/*.${ending})
  endforeach()
endforeach()
file(GLOB_RECURSE files RELATIVE ${SOURCE_DIR} ${patterns})
list(FILTER files EXCLUDE REGEX "^tests/structure/wrong/")
foreach(file ${files})
  file(STRINGS ${SOURCE_DIR}/${file} lines REGEX "// (.*[.!?:] )?${opening}")
  foreach(line ${lines})
    string(APPEND violations "${file}: ${line}\n")
  endforeach()
endforeach()

if(violations)
  message(NOTICE "${violations}")
  message(FATAL_ERROR "Sentences that open with Who, Of, What, or In which: begin with the subject")
endif()
