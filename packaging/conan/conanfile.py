"""Conan 2 recipe, which builds the tree that it lies in:

    conan create packaging/conan --build=missing
"""

import os

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rmdir


class Lockstep(ConanFile):
    name = "lockstep"
    description = "Trains neural networks on many devices as if they were one"
    license = "Apache-2.0"
    topics = ("machine-learning", "deep-learning", "neural-networks")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {
        "shared": [True, False],
        "with_hwloc": [True, False],
        "with_mpi": [True, False],
        "with_onednn": [True, False],
        "tool": [True, False],
    }
    default_options = {
        "shared": False,
        "with_hwloc": True,
        "with_mpi": False,
        "with_onednn": False,
        "tool": False,
        "hwloc/*:shared": True,
    }

    @property
    def _tree(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        for line in load(self, os.path.join(self._tree, "lockstep", "base", "version.h")).splitlines():
            if line.startswith('#define LOCKSTEP_VERSION "'):
                self.version = line.split('"')[1]

    def export_sources(self):
        for pattern in ("CMakeLists.txt", "LICENSE", "CHANGELOG.md", "cmake/*", "lockstep/*", "apps/*", "bench/*",
                        "packaging/*"):
            copy(self, pattern, self._tree, self.export_sources_folder)

    def validate(self):
        if self.settings.os != "Linux" or self.settings.arch not in ("x86_64", "armv8"):
            raise ConanInvalidConfiguration(f"{self.ref} runs on Linux, on x86_64 and armv8")
        check_min_cppstd(self, 20)

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        self.requires("fmt/[>=9.1 <12]", transitive_headers=True, transitive_libs=True)
        self.requires("libjpeg-turbo/[>=2.1 <4]")
        self.requires("libpng/[>=1.6 <2]")
        self.requires("nlohmann_json/[>=3.11 <4]")
        self.requires("openssl/[>=3.0 <4]")
        self.requires("protozero/[>=1.7 <2]")
        self.requires("zlib/[>=1.2.11 <2]")
        if self.options.with_hwloc:
            self.requires("hwloc/[>=2.9 <3]")
        if self.options.with_mpi:
            self.requires("openmpi/[>=4.1 <6]")
        if self.options.with_onednn:
            self.requires("onednn/[>=2.6 <4]")
        if self.options.tool:
            self.requires("cli11/[>=2.3 <3]")

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["BUILD_SHARED_LIBS"] = bool(self.options.shared)
        toolchain.cache_variables["LOCKSTEP_CUDA"] = "OFF"
        toolchain.cache_variables["LOCKSTEP_EXAMPLES"] = False
        toolchain.cache_variables["LOCKSTEP_HWLOC"] = bool(self.options.with_hwloc)
        toolchain.cache_variables["LOCKSTEP_MPI"] = "ON" if self.options.with_mpi else "OFF"
        toolchain.cache_variables["LOCKSTEP_ONEDNN"] = bool(self.options.with_onednn)
        toolchain.cache_variables["LOCKSTEP_TESTS"] = False
        toolchain.cache_variables["LOCKSTEP_TOOL"] = bool(self.options.tool)
        toolchain.cache_variables["LOCKSTEP_UNITY"] = True
        toolchain.generate()
        # Lockstep's own modules find the libraries that have no CMake package, so these get no other targets here.
        deps = CMakeDeps(self)
        for name in ("hwloc", "onednn", "protozero"):
            deps.set_property(name, "cmake_find_mode", "none")
        deps.generate()

    def build(self):
        cmake = CMake(self)
        # Where those modules look.
        roots = [dependency.package_folder.replace("\\", "/") for dependency in self.dependencies.host.values()]
        cmake.configure(variables={"CMAKE_PREFIX_PATH": ";".join(roots)})
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install()
        rmdir(self, os.path.join(self.package_folder, "lib", "cmake"))
        rmdir(self, os.path.join(self.package_folder, "lib", "pkgconfig"))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "Lockstep")
        self.cpp_info.set_property("cmake_target_name", "Lockstep::lockstep")
        self.cpp_info.set_property("pkg_config_name", "lockstep")
        self.cpp_info.libs = ["lockstep"]
        self.cpp_info.system_libs = ["pthread", "m"]
        for flags in ("cxxflags", "exelinkflags", "sharedlinkflags"):
            setattr(self.cpp_info, flags, ["-fopenmp"])
