# protozero writes and reads protocol buffers. It is headers only: Protozero_INCLUDE_DIR, and the target
# Protozero::protozero.
find_path(Protozero_INCLUDE_DIR protozero/pbf_writer.hpp)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Protozero REQUIRED_VARS Protozero_INCLUDE_DIR
                                  REASON_FAILURE_MESSAGE "its Debian package is libprotozero-dev")
if(Protozero_FOUND AND NOT TARGET Protozero::protozero)
  add_library(Protozero::protozero INTERFACE IMPORTED)
  target_include_directories(Protozero::protozero SYSTEM INTERFACE ${Protozero_INCLUDE_DIR})
endif()
