# `cpack -G DEB` in the folder of a build that was configured with -DCMAKE_INSTALL_PREFIX=/usr makes packages for the Debian
# that it was built on: `lockstep`, the tool, `liblockstep-dev`, the library, and `python3-lockstep`, the Python package.
#
#   cmake --preset release -B build-deb -DCMAKE_INSTALL_PREFIX=/usr -DLOCKSTEP_CUDA=OFF -DLOCKSTEP_TESTS=OFF \
#     -DLOCKSTEP_EXAMPLES=OFF
#   cmake --build build-deb && (cd build-deb && cpack -G DEB)
#
# They name the maintainer of the variables of Debian's tools, DEBFULLNAME and DEBEMAIL, read when CMake configures.
find_program(LOCKSTEP_DPKG dpkg)
find_program(LOCKSTEP_GZIP gzip)
mark_as_advanced(LOCKSTEP_DPKG LOCKSTEP_GZIP)
if(NOT PROJECT_IS_TOP_LEVEL OR BUILD_SHARED_LIBS OR NOT LOCKSTEP_DPKG OR NOT LOCKSTEP_GZIP)
  return()
endif()

set(LOCKSTEP_MAINTAINER "Lockstep <lockstep@localhost>")
if(DEFINED ENV{DEBFULLNAME} AND DEFINED ENV{DEBEMAIL})
  set(LOCKSTEP_MAINTAINER "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT ${LOCKSTEP_MAINTAINER})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_ALL tool library deb_tool deb_library)
# CPack makes one of each group.
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_TOOL_PACKAGE_NAME lockstep)
set(CPACK_DEBIAN_TOOL_PACKAGE_SECTION science)
set(CPACK_DEBIAN_TOOL_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_TOOL_PACKAGE_RECOMMENDS dataset-fashion-mnist)
# These follow the line that is the description of the project.
set(CPACK_DEBIAN_TOOL_DESCRIPTION
"The tool trains on pictures, tables, arrays, and texts, on all cores of one
machine or on many machines, and predicts. The trained weights are the same,
to the last bit, whether one device did the work or eight.")

set(needs libfmt-dev libjpeg62-turbo-dev libpng-dev libssl-dev zlib1g-dev)
foreach(pair LOCKSTEP_HWLOC=libhwloc-dev LOCKSTEP_ONEDNN=libdnnl-dev LOCKSTEP_MPI_KIND=libopenmpi-dev)
  string(REGEX MATCH "(.*)=(.*)" pair ${pair})
  if(${CMAKE_MATCH_1})
    list(APPEND needs ${CMAKE_MATCH_2})
  endif()
endforeach()
list(SORT needs)
list(JOIN needs ", " needs)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME liblockstep-dev)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS ${needs})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SUGGESTS "lockstep, cmake, pkgconf")
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION
"The C++20 library, for development: tensors with derivatives, layers,
optimizers, data sets, checkpoints, and training on many devices and processes
with the same bits. This package has the headers, an archive, and the files
for CMake's find_package(Lockstep) and for pkg-config.")

set(packages tool=lockstep library=liblockstep-dev)
if(LOCKSTEP_PYTHON_KIND)
  list(APPEND packages python=python3-lockstep)
  list(APPEND CPACK_COMPONENTS_ALL python deb_python)
  set(minor ${Python3_VERSION_MINOR})
  math(EXPR next "${minor} + 1")
  set(CPACK_DEBIAN_PYTHON_PACKAGE_NAME python3-lockstep)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_SECTION python)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_DEPENDS "python3 (>= 3.${minor}~), python3 (<< 3.${next})")
  set(CPACK_DEBIAN_PYTHON_PACKAGE_RECOMMENDS "python3-numpy, dataset-fashion-mnist")
  set(CPACK_DEBIAN_PYTHON_PACKAGE_SUGGESTS lockstep)
  set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA
      "${PROJECT_SOURCE_DIR}/packaging/debian/python3-lockstep/postinst;${PROJECT_SOURCE_DIR}/packaging/debian/python3-lockstep/prerm")
  set(CPACK_DEBIAN_PYTHON_DESCRIPTION
"The Python package: PyTorch's names for tensors, layers, optimizers, data
sets, and training on many devices and processes. The trained weights have the
bits that the tool and programs in C++ get.")
endif()

# What Debian wants beside the files that are installed everywhere.
set(folder ${PROJECT_BINARY_DIR}/debian)
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
string(TIMESTAMP year "%Y" UTC)
foreach(item ${packages})
  string(REGEX MATCH "(.*)=(.*)" item ${item})
  set(component ${CMAKE_MATCH_1})
  set(package ${CMAKE_MATCH_2})
  configure_file(packaging/debian/changelog.in ${folder}/${package}/changelog.Debian @ONLY)
  configure_file(packaging/debian/copyright.in ${folder}/${package}/copyright @ONLY)
  configure_file(CHANGELOG.md ${folder}/${package}/changelog COPYONLY)
  execute_process(COMMAND ${LOCKSTEP_GZIP} -9nf changelog.Debian changelog WORKING_DIRECTORY ${folder}/${package}
                  COMMAND_ERROR_IS_FATAL ANY)
  install(FILES ${folder}/${package}/copyright ${folder}/${package}/changelog.gz ${folder}/${package}/changelog.Debian.gz
                ${PROJECT_BINARY_DIR}/lockstep.spdx.json
          DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/${package} COMPONENT deb_${component} EXCLUDE_FROM_ALL)
endforeach()
foreach(page lockstep lockstep-bench)
  configure_file(packaging/debian/${page}.1 ${folder}/${page}.1 COPYONLY)
  execute_process(COMMAND ${LOCKSTEP_GZIP} -9nf ${page}.1 WORKING_DIRECTORY ${folder} COMMAND_ERROR_IS_FATAL ANY)
  install(FILES ${folder}/${page}.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT deb_tool EXCLUDE_FROM_ALL)
endforeach()

# No package of Debian's has CUDA's libraries, so that the tool would not start where they are missing.
if(LOCKSTEP_CUDA_KIND STREQUAL "ON")
  set(CPACK_PRE_BUILD_SCRIPTS ${folder}/refuse_cuda.cmake)
  file(WRITE ${CPACK_PRE_BUILD_SCRIPTS} "message(FATAL_ERROR \"cpack: this build has the CUDA back end, whose libraries \
no package of Debian's has: configure it with -DLOCKSTEP_CUDA=OFF\")\n")
endif()

include(CPack)
cpack_add_component_group(tool)
cpack_add_component_group(library)
cpack_add_component(tool GROUP tool)
cpack_add_component(deb_tool GROUP tool)
cpack_add_component(library GROUP library)
cpack_add_component(deb_library GROUP library)
if(LOCKSTEP_PYTHON_KIND)
  cpack_add_component_group(python)
  cpack_add_component(python GROUP python)
  cpack_add_component(deb_python GROUP python)
endif()
