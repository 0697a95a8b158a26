# `cmake --install` installs headers, the library, and its files for find_package(Lockstep) and for pkg-config (component
# "library"), the tool (component "tool"), the Python package (component "python"), and what they are made of (component "sbom").
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep)

install(TARGETS lockstep_all EXPORT LockstepTargets COMPONENT library)
# lockstep/lockstep.h names all public headers. They include no others: tests/structure/check_exports.cmake.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS lockstep/lockstep.h)
file(STRINGS lockstep/lockstep.h headers REGEX "^#include \"lockstep/")
list(TRANSFORM headers REPLACE "^#include \"([^\"]*)\".*" "\\1")
list(APPEND headers lockstep/lockstep.h)
foreach(header ${headers})
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder} COMPONENT library)
endforeach()
foreach(program lockstep lockstep_bench)
  if(TARGET ${program})
    install(TARGETS ${program} COMPONENT tool)
  endif()
endforeach()

install(EXPORT LockstepTargets NAMESPACE Lockstep:: DESTINATION ${package_dir} COMPONENT library)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/LockstepConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/LockstepConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/LockstepConfig.cmake ${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake
              cmake/FindOneDNN.cmake cmake/FindHwloc.cmake cmake/FindCudaLibraries.cmake
        DESTINATION ${package_dir} COMPONENT library)

include(LockstepPkgConfig)
include(LockstepSbom)
include(LockstepDeb)
