// Internal: what the machine says of its CPUs: by hwloc (hwloc_machine.cc), or by /sys alone in a build without hwloc
// (no_hwloc.cc).
#pragma once

#include <filesystem>
#include <string>

#include "lockstep/device/topology.h"

namespace lockstep {

// All CPUs by NUMA node: hardware threads of one core, and cores of one cache, side by side.
CpuNodes machine_cpus();

// "Intel(R) Xeon(R) Gold 6454S"; empty if the machine does not say.
std::string machine_model();

// The same from the kernel's files in a folder like /sys/devices/system, and from text like that of /proc/cpuinfo. Does
// not list CPUs that the folder does not describe.
CpuNodes read_system_cpus(const std::filesystem::path& system);
std::string model_in_cpuinfo(const std::string& text);

}  // namespace lockstep
