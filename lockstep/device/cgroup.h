// Internal: the limits that Linux control groups set for this process. Containers and batch systems use them. Formulas
// and file formats: Documentation/admin-guide/cgroup-v1 and cgroup-v2.rst of the kernel.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

namespace lockstep {

struct CgroupLimits {
  // The CPU time that the group may use, in CPUs: ceil(quota / period), at least 1.
  std::optional<int> cpus;
  std::optional<std::size_t> memory_bytes;
  // Bytes of anonymous and shared memory that the group with that limit uses now. The page cache does not count,
  // because the system can drop it. Empty if the group does not say.
  std::optional<std::size_t> memory_used;
};

// Returns the lowest limits of this process's group and its parent groups, of versions 1 and 2. `root` is the root of
// the file system. A file that cannot be read or parsed sets no limit, because there may be no control groups.
CgroupLimits read_cgroup_limits(const std::filesystem::path& root = "/");

}  // namespace lockstep
