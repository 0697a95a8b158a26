// Internal: the machine's CPUs and their model, read with hwloc (hwloc_machine.cc) or, in a build without hwloc, from
// the kernel's files (no_hwloc.cc).
#pragma once

#include <filesystem>
#include <string>

#include "lockstep/device/topology.h"

namespace lockstep {

// All CPUs by NUMA node. Hardware threads of one core, and cores that share a cache, are adjacent.
CpuNodes machine_cpus();

// "Intel(R) Xeon(R) Gold 6454S"; empty if the machine does not say.
std::string machine_model();

// Read the same from a folder like /sys/devices/system, and from text like that of /proc/cpuinfo. CPUs that the folder
// does not describe are left out.
CpuNodes read_system_cpus(const std::filesystem::path& system);
std::string model_in_cpuinfo(const std::string& text);

}  // namespace lockstep
