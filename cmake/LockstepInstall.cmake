# `cmake --install` installs headers, the library, the tool, and the package for find_package(Lockstep).
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep)

install(TARGETS lockstep_all EXPORT LockstepTargets)
install(DIRECTORY lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h"
        PATTERN "backend/cpu" EXCLUDE PATTERN "backend/reference" EXCLUDE PATTERN "cuda" EXCLUDE
        PATTERN "mpi" EXCLUDE  # reached through make_*() only
        PATTERN "train/log_writer.h" EXCLUDE)  # only for the tool; no installed header needs JSON
if(TARGET lockstep)
  install(TARGETS lockstep)
endif()

install(EXPORT LockstepTargets NAMESPACE Lockstep:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/LockstepConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/LockstepConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/LockstepConfig.cmake ${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake
              cmake/FindOneDNN.cmake cmake/FindHwloc.cmake cmake/FindCudaLibraries.cmake
        DESTINATION ${package_dir})
