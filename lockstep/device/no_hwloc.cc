// Replaces hwloc_machine.cc in a build without hwloc: reads the kernel's files.
#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/device/machine.h"

namespace lockstep {

CpuNodes machine_cpus() { return read_system_cpus("/sys/devices/system"); }

std::string machine_model() {
  try {
    return model_in_cpuinfo(read_file("/proc/cpuinfo", std::size_t{64} << 20));
  } catch (const Error&) {  // a chroot without /proc
    return {};
  }
}

}  // namespace lockstep
