# cmake -DSOURCE_DIR=… -P check_output.cmake: fails when a file of the tool prints by itself: apps/lockstep/output.h keeps
# control characters from terminals. Exempt are the progress bar, which has no text of strangers, the launcher, which
# passes on what programs print, and a pipe to graphviz.
cmake_minimum_required(VERSION 3.25)
file(GLOB_RECURSE files RELATIVE ${SOURCE_DIR} ${SOURCE_DIR}/apps/lockstep/*.cc ${SOURCE_DIR}/apps/lockstep/*.h)
set(violations "")
foreach(file ${files})
  if(file MATCHES "/(output|progress_bar|launch|graph)\\.cc$")
    continue()
  endif()
  file(STRINGS ${SOURCE_DIR}/${file} calls
       REGEX "fmt::v?print[(]|std::(v?f?printf|f?puts|fwrite|f?putc|putchar|perror)[(]|std::(cout|cerr|clog)")
  if(calls)
    string(APPEND violations "${file}: prints by itself, expected print_out(), print_text(), or print_data(): ${calls}\n")
  endif()
endforeach()
if(violations)
  message(NOTICE "${violations}")
  message(FATAL_ERROR "Text that control characters may be in")
endif()
