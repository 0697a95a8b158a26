// Internal: the part of this machine that the process may use, and how devices split it. "CPU" and "core" mean the unit
// of scheduling: with hyper-threading, a hardware thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// CPUs by NUMA node, in the machine's order: hardware threads of one core, and cores that share a cache, are adjacent.
using CpuNodes = std::vector<std::vector<int>>;

// The CPUs that this process should use, in the machine's order: the calling thread's affinity mask, limited by the
// control group's CPU quota, and of these the share of rank LOCAL_RANK of LOCAL_WORLD_SIZE if the environment has both.
// Never empty: ranks share CPUs if there are more ranks than CPUs.
std::vector<int> available_cpus();

// Whether a quota, not the mask, decides how many CPUs available_cpus() has. The process may then run on any CPU of its
// mask, beside other groups; threads of all groups that are bound to the first CPUs would crowd there.
bool limited_by_quota();

// The CPUs of each device: equally many, cores_per_device or, if that is 0, the most for which they are disjoint. The
// rest stays free for the host thread. A device has CPUs of as few NUMA nodes as possible, and devices of one node are
// adjacent in the list. If there are more devices than CPUs, they share CPUs in turn.
std::vector<std::vector<int>> split_cpus(const std::vector<int>& cpus, int devices, int cores_per_device = 0);

// "Intel(R) Xeon(R) Gold 6454S", or the architecture if the machine does not say.
std::string cpu_model_name();

// Bytes of memory that this process may use: the machine's memory or, if lower, the control group's limit.
std::size_t total_memory();

// A sentence for the user if OpenMP's settings took CPUs away from this thread; otherwise empty. (OMP_PROC_BIND=true
// binds the main thread to one CPU, and every thread that it starts inherits the binding.)
std::string binding_notice();

// The functions above, with the caller's inputs instead of the machine's.

// Returns `cpus` by node, in the order of the machine.
CpuNodes group_by_node(const std::vector<int>& cpus, const CpuNodes& machine);

std::vector<std::vector<int>> split_nodes(const CpuNodes& nodes, int devices, int cores_per_device = 0);

struct LocalRank {
  int rank = 0;
  int size = 1;
};
// LOCAL_RANK of LOCAL_WORLD_SIZE; 0 of 1 if neither is set. Throws if only one is set or a value is invalid.
LocalRank read_local_rank();

std::vector<int> share_of_rank(const CpuNodes& nodes, std::optional<int> quota, LocalRank local);

// `variable` and `value` are the setting that binds; `mask` and `machine` are numbers of CPUs.
std::string binding_notice(std::string_view variable, std::string_view value, int mask, int machine);

}  // namespace lockstep
