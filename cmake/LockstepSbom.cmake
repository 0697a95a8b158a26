# lockstep.spdx.json: what a build of the tool, the library, and the Python package is made of, as SPDX 2.3. Packages
# and wheels have it. Versions are those of the files that CMake found. tests/package/check_sbom.py checks it.
if(LOCKSTEP_STATIC)
  set(how STATIC_LINK)
else()
  set(how DYNAMIC_LINK)
endif()
set(sbom_supplier NOASSERTION)
if(EXISTS /etc/debian_version)
  set(sbom_supplier "Organization: Debian")
endif()
find_program(LOCKSTEP_PKG_CONFIG NAMES pkgconf pkg-config)
mark_as_advanced(LOCKSTEP_PKG_CONFIG)

# The version that pkg-config knows.
function(lockstep_pc_version NAME MODULE)
  set(version "")
  if(LOCKSTEP_PKG_CONFIG AND NOT CMAKE_CROSSCOMPILING)  # it knows this machine's
    execute_process(COMMAND ${LOCKSTEP_PKG_CONFIG} --modversion ${MODULE} OUTPUT_VARIABLE version
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  set(${NAME} "${version}" PARENT_SCOPE)
endfunction()

# The numbers that a header defines: 3.1.4 of names A, B, C.
function(lockstep_header_version NAME HEADER)
  set(numbers "")
  foreach(macro ${ARGN})
    file(STRINGS ${HEADER} line REGEX "^#define +${macro} +[0-9]+" LIMIT_COUNT 1)
    string(REGEX MATCH "[0-9]+$" number "${line}")
    list(APPEND numbers ${number})
  endforeach()
  list(JOIN numbers "." numbers)
  set(${NAME} "${numbers}" PARENT_SCOPE)
endfunction()

set(sbom_packages "")
set(sbom_relationships "")

# lockstep_sbom(NAME VERSION LICENSE HOME HOW [FILE]): HOW is a relationship of SPDX, and FILE the library that is
# linked.
function(lockstep_sbom NAME VERSION LICENSE HOME HOW)
  if(NOT VERSION)
    set(VERSION NOASSERTION)
  endif()
  set(file "")
  if(ARGN)
    set(file "\n      \"packageFileName\": \"${ARGN}\",")
  endif()
  set(id SPDXRef-${NAME})
  set(sbom_packages "${sbom_packages},
    {
      \"name\": \"${NAME}\",
      \"SPDXID\": \"${id}\",
      \"versionInfo\": \"${VERSION}\",${file}
      \"supplier\": \"${sbom_supplier}\",
      \"downloadLocation\": \"${HOME}\",
      \"filesAnalyzed\": false,
      \"licenseConcluded\": \"${LICENSE}\",
      \"licenseDeclared\": \"${LICENSE}\",
      \"copyrightText\": \"NOASSERTION\"
    }" PARENT_SCOPE)
  set(sbom_relationships "${sbom_relationships},
    {\"spdxElementId\": \"SPDXRef-Lockstep\", \"relationshipType\": \"${HOW}\", \"relatedSpdxElement\": \"${id}\"}"
    PARENT_SCOPE)
endfunction()

set(runtime "GPL-3.0-or-later WITH GCC-exception-3.1")
lockstep_sbom(OpenSSL "${OPENSSL_VERSION}" Apache-2.0 https://www.openssl.org ${how} libcrypto)
lockstep_sbom(zlib "${ZLIB_VERSION_STRING}" Zlib https://zlib.net ${how} libz)
lockstep_pc_version(version libjpeg)
lockstep_sbom(libjpeg-turbo "${version}" "IJG AND BSD-3-Clause AND Zlib" https://libjpeg-turbo.org ${how} libjpeg)
lockstep_sbom(libpng "${PNG_VERSION_STRING}" libpng-2.0 http://www.libpng.org ${how} libpng16)
if(LOCKSTEP_FMT STREQUAL "fmt::fmt")
  lockstep_sbom(fmt "${fmt_VERSION}" MIT https://fmt.dev ${how} libfmt)
else()
  lockstep_sbom(fmt "${fmt_VERSION}" MIT https://fmt.dev CONTAINS)
endif()
if(LOCKSTEP_HWLOC)
  lockstep_pc_version(version hwloc)
  lockstep_sbom(hwloc "${version}" BSD-3-Clause https://www.open-mpi.org/projects/hwloc ${how} libhwloc)
endif()
if(LOCKSTEP_ONEDNN)
  get_target_property(folder DNNL::dnnl INTERFACE_INCLUDE_DIRECTORIES)
  set(version "")
  foreach(header ${folder}/oneapi/dnnl/dnnl_version.h ${folder}/dnnl_version.h)
    if(EXISTS ${header})
      lockstep_header_version(version ${header} DNNL_VERSION_MAJOR DNNL_VERSION_MINOR DNNL_VERSION_PATCH)
      break()
    endif()
  endforeach()
  lockstep_sbom(oneDNN "${version}" Apache-2.0 https://github.com/oneapi-src/oneDNN ${how} libdnnl)
endif()
if(LOCKSTEP_MPI_KIND)
  lockstep_pc_version(version ompi)
  lockstep_sbom(OpenMPI "${version}" BSD-3-Clause-Open-MPI https://www.open-mpi.org ${how} libmpi)
endif()
if(LOCKSTEP_CUDA_KIND STREQUAL "ON")
  lockstep_header_version(number ${CudaLibraries_runtime_INCLUDE_DIR}/cuda_runtime_api.h CUDART_VERSION)
  math(EXPR major "${number} / 1000")
  math(EXPR minor "${number} % 1000 / 10")
  lockstep_sbom(CUDA-runtime "${major}.${minor}" NOASSERTION https://developer.nvidia.com/cuda-toolkit ${how} libcudart)
  set(version "")
  foreach(header cudnn_version.h cudnn.h)
    if(EXISTS ${CudaLibraries_cudnn_INCLUDE_DIR}/${header} AND NOT version)
      lockstep_header_version(version ${CudaLibraries_cudnn_INCLUDE_DIR}/${header} CUDNN_MAJOR CUDNN_MINOR CUDNN_PATCHLEVEL)
    endif()
  endforeach()
  lockstep_sbom(cuDNN "${version}" NOASSERTION https://developer.nvidia.com/cudnn ${how} libcudnn)
endif()
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -x c++ -dM -E -include features.h /dev/null
                OUTPUT_VARIABLE macros ERROR_QUIET)
if(macros MATCHES "#define __GLIBC__ ([0-9]+)")
  set(version ${CMAKE_MATCH_1})
  string(REGEX MATCH "#define __GLIBC_MINOR__ ([0-9]+)" minor "${macros}")
  lockstep_sbom(glibc "${version}.${CMAKE_MATCH_1}" LGPL-2.1-or-later https://www.gnu.org/software/libc ${how} libc)
endif()
lockstep_sbom(GCC-runtime "${CMAKE_CXX_COMPILER_VERSION}" "${runtime}" https://gcc.gnu.org ${how} "libstdc++")
# Headers, whose code is in the result.
lockstep_sbom(nlohmann-json "${nlohmann_json_VERSION}" MIT https://json.nlohmann.me CONTAINS)
get_target_property(folder Protozero::protozero INTERFACE_INCLUDE_DIRECTORIES)
lockstep_header_version(version ${folder}/protozero/version.hpp PROTOZERO_VERSION_MAJOR PROTOZERO_VERSION_MINOR
                        PROTOZERO_VERSION_PATCH)
lockstep_sbom(protozero "${version}" "BSD-2-Clause AND Apache-2.0" https://github.com/mapbox/protozero CONTAINS)
if(LOCKSTEP_TOOL)
  lockstep_sbom(CLI11 "${CLI11_VERSION}" BSD-3-Clause https://github.com/CLIUtils/CLI11 CONTAINS)
endif()
if(LOCKSTEP_PYTHON_KIND)
  lockstep_sbom(pybind11 "${pybind11_VERSION}" BSD-3-Clause https://pybind11.readthedocs.io CONTAINS)
endif()

string(TIMESTAMP created "%Y-%m-%dT%H:%M:%SZ" UTC)  # SOURCE_DATE_EPOCH decides it where it is set
# Equal content has an equal name.
string(SHA256 content "${PROJECT_VERSION}${sbom_packages}${sbom_relationships}")
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/lockstep.spdx.json @ONLY CONTENT "{
  \"spdxVersion\": \"SPDX-2.3\",
  \"dataLicense\": \"CC0-1.0\",
  \"SPDXID\": \"SPDXRef-DOCUMENT\",
  \"name\": \"lockstep-${PROJECT_VERSION}\",
  \"documentNamespace\": \"https://lockstep.invalid/spdx/lockstep-${PROJECT_VERSION}-${content}\",
  \"creationInfo\": {\"created\": \"${created}\", \"creators\": [\"Tool: CMake-${CMAKE_VERSION}\"]},
  \"packages\": [
    {
      \"name\": \"lockstep\",
      \"SPDXID\": \"SPDXRef-Lockstep\",
      \"versionInfo\": \"${PROJECT_VERSION}\",
      \"supplier\": \"Organization: Lockstep\",
      \"downloadLocation\": \"NOASSERTION\",
      \"filesAnalyzed\": false,
      \"licenseConcluded\": \"Apache-2.0\",
      \"licenseDeclared\": \"Apache-2.0\",
      \"copyrightText\": \"NOASSERTION\"
    }${sbom_packages}
  ],
  \"relationships\": [
    {\"spdxElementId\": \"SPDXRef-DOCUMENT\", \"relationshipType\": \"DESCRIBES\",
     \"relatedSpdxElement\": \"SPDXRef-Lockstep\"}${sbom_relationships}
  ]
}
")
# Debian's packages have it beside their copyright (LockstepDeb.cmake), and wheels in their metadata (packaging/wheel).
install(FILES ${PROJECT_BINARY_DIR}/lockstep.spdx.json COMPONENT sbom
        DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/lockstep)
