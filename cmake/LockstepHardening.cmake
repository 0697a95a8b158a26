# What makes memory errors harder to exploit, and bytes that do not depend on the folder of the build. Both hold for all
# that is compiled here, without sanitizers, which need the real paths and bring checks of their own. Programs that link
# the installed library choose for themselves.
option(LOCKSTEP_HARDENING "Compile and link as Debian hardens its packages" ON)
if(LOCKSTEP_SANITIZE)
  return()
endif()

# Adds flags of the C++ compiler, also where nvcc calls it.
function(lockstep_add_flags)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${ARGN}>")
  list(TRANSFORM ARGN PREPEND "-Xcompiler=")
  add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:${ARGN}>")
endfunction()

# Later maps come first: the folder of the build may lie in that of the sources.
lockstep_add_flags(-ffile-prefix-map=${PROJECT_SOURCE_DIR}=. -ffile-prefix-map=${PROJECT_BINARY_DIR}=./build)
# Without dates and owners: other builds of GNU's tools than Debian's keep them by default.
set(CMAKE_CXX_ARCHIVE_CREATE "<CMAKE_AR> qcD <TARGET> <LINK_FLAGS> <OBJECTS>")
set(CMAKE_CXX_ARCHIVE_APPEND "<CMAKE_AR> qD <TARGET> <LINK_FLAGS> <OBJECTS>")
set(CMAKE_CXX_ARCHIVE_FINISH "<CMAKE_RANLIB> -D <TARGET>")

if(NOT LOCKSTEP_HARDENING)
  return()
endif()
include(CheckCXXCompilerFlag)
if(NOT LOCKSTEP_STATIC)  # whose programs have no loader that could move them
  include(CheckPIESupported)
  check_pie_supported(LANGUAGES CXX)
endif()
set(flags -fstack-protector-strong -fstack-clash-protection -fcf-protection)
foreach(flag ${flags})
  string(MAKE_C_IDENTIFIER "LOCKSTEP_HAS${flag}" known)
  check_cxx_compiler_flag(${flag} ${known})
  if(${known})
    lockstep_add_flags(${flag})
  endif()
endforeach()
# Level 3 also checks sizes that are known at run time alone. It needs an optimizer.
set(level 2)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12
   OR CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 15)
  set(level 3)
endif()
if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  lockstep_add_flags(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${level})
endif()
# All symbols are bound at the start, and their table is then read-only.
add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack)
