# An overlay port, which builds the tree that it lies in:
#
#   vcpkg install lockstep --overlay-ports=FOLDER_OF_LOCKSTEP/packaging/vcpkg
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../.." ABSOLUTE)

vcpkg_check_features(OUT_FEATURE_OPTIONS options
  FEATURES
    hwloc LOCKSTEP_HWLOC
    mpi LOCKSTEP_MPI
    onednn LOCKSTEP_ONEDNN
    tool LOCKSTEP_TOOL
)
vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    ${options}
    -DLOCKSTEP_CUDA=OFF
    -DLOCKSTEP_EXAMPLES=OFF
    -DLOCKSTEP_TESTS=OFF
    -DLOCKSTEP_UNITY=ON
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/Lockstep)
vcpkg_fixup_pkgconfig()
if("tool" IN_LIST FEATURES)
  vcpkg_copy_tools(TOOL_NAMES lockstep lockstep-bench AUTO_CLEAN)
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
