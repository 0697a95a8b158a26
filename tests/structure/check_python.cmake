# cmake -DSOURCE_DIR=… -P check_python.cmake: fails when a file of python/src includes an internal header that the list
# below lacks, or when it has one that no file includes: the list can only shrink. Views of tensors and writes to them, hooks,
# and what a program shows of its engine need more than lockstep.h has.
cmake_minimum_required(VERSION 3.25)
set(known
    lockstep/autograd/dlpack_abi.h
    lockstep/autograd/forward_trace.h
    lockstep/autograd/grad.h
    lockstep/autograd/index_list.h
    lockstep/autograd/lift.h
    lockstep/autograd/node.h
    lockstep/autograd/program_function.h
    lockstep/autograd/promote.h
    lockstep/autograd/tensor_hooks.h
    lockstep/autograd/tensor_impl.h
    lockstep/base/interruption.h
    lockstep/device/file_memory.h
    lockstep/engine/engine.h
    lockstep/engine/task_graph.h
    lockstep/launch/child_process.h
    lockstep/net/secret.h
    lockstep/net/tcp_store_server.h
    lockstep/nn/layer_error.h
    lockstep/runtime/living_runtimes.h
    lockstep/runtime/random_state.h
    lockstep/tensor/storage.h)
file(STRINGS ${SOURCE_DIR}/lockstep/lockstep.h public REGEX "^#include \"")
list(APPEND public "#include \"lockstep/lockstep.h\"")
file(GLOB files RELATIVE ${SOURCE_DIR} ${SOURCE_DIR}/python/src/*.cc ${SOURCE_DIR}/python/src/*.h)
set(unused ${known})
set(violations "")
foreach(file ${files})
  file(STRINGS ${SOURCE_DIR}/${file} includes REGEX "^#include \"lockstep/")
  foreach(line ${includes})
    string(REGEX REPLACE "^#include \"([^\"]*).*" "\\1" header "${line}")
    list(REMOVE_ITEM unused ${header})
    if(NOT line IN_LIST public AND NOT header IN_LIST known)
      string(APPEND violations "${file}: includes ${header}, which is internal, expected a public header\n")
    endif()
  endforeach()
endforeach()
foreach(header ${unused})
  string(APPEND violations "check_python.cmake: lists ${header}, which no file of python/src includes\n")
endforeach()
if(violations)
  message(NOTICE "${violations}")
  message(FATAL_ERROR "Internal headers in python/src")
endif()
