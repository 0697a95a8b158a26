# Defines Spng::spng, because Debian's libspng has no CMake package. Other archives are called spng_static.
find_path(Spng_INCLUDE_DIR spng.h)
find_library(Spng_LIBRARY NAMES spng spng_static)
mark_as_advanced(Spng_INCLUDE_DIR Spng_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Spng REQUIRED_VARS Spng_LIBRARY Spng_INCLUDE_DIR
                                  REASON_FAILURE_MESSAGE "its Debian package is libspng-dev")
if(Spng_FOUND AND NOT TARGET Spng::spng)
  add_library(Spng::spng UNKNOWN IMPORTED)
  set_target_properties(Spng::spng PROPERTIES IMPORTED_LOCATION ${Spng_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${Spng_INCLUDE_DIR})
endif()
