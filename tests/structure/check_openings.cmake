# cmake -DSOURCE_DIR=… -P check_openings.cmake: fails when a sentence of the documentation, or of a comment in the headers
# of the folders below, opens with Who, Of, What, or In which. Such sentences hide their subject: "Who finds it taken backs
# off" reads better as "A thread that finds it taken backs off". Questions and headings may open so. The list of folders
# grows until it has all of them.
cmake_minimum_required(VERSION 3.25)
set(folders
    apps/lockstep
    examples
    lockstep/checkpoint
    lockstep/comm
    lockstep/launch
    lockstep/net
    lockstep/nn
    lockstep/train)
set(opening "(Who|Of|What|In which) [^?]*$")
set(violations "")

file(GLOB_RECURSE pages RELATIVE ${SOURCE_DIR} ${SOURCE_DIR}/docs/*.md)
foreach(page README.md CONTRIBUTING.md ${pages})
  if(EXISTS ${SOURCE_DIR}/${page})
    # A line that begins with # is a heading; | begins a row of a table.
    file(STRINGS ${SOURCE_DIR}/${page} lines REGEX "^([^#|].*[.!?:] |[-*0-9.> ]*)${opening}")
    foreach(line ${lines})
      string(APPEND violations "${page}: ${line}\n")
    endforeach()
  endif()
endforeach()

foreach(folder ${folders})
  file(GLOB_RECURSE headers RELATIVE ${SOURCE_DIR} ${SOURCE_DIR}/${folder}/*.h)
  foreach(header ${headers})
    file(STRINGS ${SOURCE_DIR}/${header} lines REGEX "// (.*[.!?:] )?${opening}")
    foreach(line ${lines})
      string(APPEND violations "${header}: ${line}\n")
    endforeach()
  endforeach()
endforeach()

if(violations)
  message(NOTICE "${violations}")
  message(FATAL_ERROR "Sentences that open with Who, Of, What, or In which: begin with the subject")
endif()
