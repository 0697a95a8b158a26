# cmake -DSOURCE_DIR=… -P check_openings.cmake: fails when a sentence of the documentation, or of a comment in the folders
# below, opens with Who, Of, What, or In which. Such sentences hide their subject: "Who finds it taken backs
# off" reads better as "A thread that finds it taken backs off". Questions and headings may open so. The two lists
# grow until every folder is checked.
cmake_minimum_required(VERSION 3.25)
set(folders
    apps/lockstep
    examples
    lockstep/autograd
    lockstep/backend
    lockstep/base
    lockstep/checkpoint
    lockstep/comm
    lockstep/data
    lockstep/device
    lockstep/engine
    lockstep/launch
    lockstep/net
    lockstep/ops
    lockstep/parallel
    lockstep/runtime
    lockstep/tensor
    tests/cli
    tests/comm
    tests/cuda_emulator
    tests/failure
    tests/gpu
    tests/launch
    tests/net)
set(folders_of_headers  # their sources are not checked yet
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

set(patterns "")
foreach(folder ${folders})
  foreach(ending h cc cu cuh inc)
    list(APPEND patterns ${SOURCE_DIR}/${folder}/*.${ending})
  endforeach()
endforeach()
foreach(folder ${folders_of_headers})
  list(APPEND patterns ${SOURCE_DIR}/${folder}/*.h)
endforeach()
file(GLOB_RECURSE files RELATIVE ${SOURCE_DIR} ${patterns})
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
