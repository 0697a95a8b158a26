#include "lockstep/device/topology.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <numeric>
#include <system_error>
#include <utility>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/device/cgroup.h"
#include "lockstep/device/machine.h"

namespace lockstep {
namespace {

// The calling thread's CPUs in ascending order.
std::vector<int> affinity_mask() {
  for (int room = 1024; room <= 1 << 20; room *= 2) {
    const auto free_set = [](cpu_set_t* set) { CPU_FREE(set); };
    const std::unique_ptr<cpu_set_t, decltype(free_set)> set(CPU_ALLOC(room));
    const std::size_t bytes = CPU_ALLOC_SIZE(room);
    if (set && sched_getaffinity(0, bytes, set.get()) == 0) {
      std::vector<int> cpus;
      for (int cpu = 0; cpu < room; ++cpu) {
        if (CPU_ISSET_S(cpu, bytes, set.get())) cpus.push_back(cpu);
      }
      return cpus;
    }
    // EINVAL: the kernel's masks are larger.
    if (errno != EINVAL) break;
  }
  fail("topology: cannot read the affinity mask: {}", std::generic_category().message(errno));
}

// Read once: hwloc opens some hundred files, and a Runtime asks several times.
const CpuNodes& this_machine() {
  static const CpuNodes nodes = machine_cpus();
  return nodes;
}

std::size_t count(const CpuNodes& nodes) {
  return std::accumulate(nodes.begin(), nodes.end(), std::size_t{0},
                         [](std::size_t sum, const auto& node) { return sum + node.size(); });
}

// Device d takes the next `each` CPUs after those of device d - 1, and starts again at the first CPU at the end.
std::vector<std::vector<int>> deal_in_turn(const CpuNodes& nodes, std::size_t devices, std::size_t each) {
  std::vector<int> all;
  for (const auto& node : nodes) all.insert(all.end(), node.begin(), node.end());
  std::vector<std::vector<int>> result(devices);
  for (std::size_t i = 0; i < devices * each; ++i) result[i / each].push_back(all[i % all.size()]);
  return result;
}

// Each device takes CPUs of the node with the most free CPUs until it has enough. So a device stays in one node if any
// node has enough free CPUs, and takes whole nodes first if it needs several.
std::vector<std::vector<int>> deal_by_node(const CpuNodes& nodes, std::size_t devices, std::size_t each) {
  std::vector<std::size_t> used(nodes.size());
  std::vector<std::pair<std::size_t, std::vector<int>>> dealt(devices);  // with the first node as the sort key
  for (auto& [first_node, cpus] : dealt) {
    while (cpus.size() < each) {
      std::size_t best = 0;
      for (std::size_t n = 1; n < nodes.size(); ++n) {
        if (nodes[n].size() - used[n] > nodes[best].size() - used[best]) best = n;
      }
      if (cpus.empty()) first_node = best;
      const std::size_t take = std::min(each - cpus.size(), nodes[best].size() - used[best]);
      const auto from = nodes[best].begin() + static_cast<std::ptrdiff_t>(used[best]);
      cpus.insert(cpus.end(), from, from + static_cast<std::ptrdiff_t>(take));
      used[best] += take;
    }
  }
  std::stable_sort(dealt.begin(), dealt.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::vector<int>> result;
  for (auto& [first_node, cpus] : dealt) result.push_back(std::move(cpus));
  return result;
}

}  // namespace

std::vector<int> available_cpus() {
  return share_of_rank(group_by_node(affinity_mask(), this_machine()), read_cgroup_limits().cpus, read_local_rank());
}

bool limited_by_quota() {
  const std::optional<int> quota = read_cgroup_limits().cpus;
  return quota && static_cast<std::size_t>(*quota) < affinity_mask().size();
}

std::vector<std::vector<int>> split_cpus(const std::vector<int>& cpus, int devices, int cores_per_device) {
  return split_nodes(group_by_node(cpus, this_machine()), devices, cores_per_device);
}

std::string cpu_model_name() {
  static const std::string model = machine_model();
  if (!model.empty()) return model;
  utsname system;
  return ::uname(&system) == 0 ? system.machine : "unknown";
}

std::size_t total_memory() {
  const auto pages = static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES));
  const auto machine = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return std::min(machine, read_cgroup_limits().memory_bytes.value_or(machine));
}

std::string binding_notice() {
  const auto mask = static_cast<int>(affinity_mask().size());
  const auto machine = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  for (const char* variable : {"OMP_PROC_BIND", "GOMP_CPU_AFFINITY"}) {
    const std::string notice = binding_notice(variable, environment(variable).value_or(""), mask, machine);
    if (!notice.empty()) return notice;
  }
  return {};
}

CpuNodes group_by_node(const std::vector<int>& cpus, const CpuNodes& machine) {
  std::vector<int> left = cpus;
  CpuNodes nodes;
  for (const std::vector<int>& all : machine) {
    std::vector<int> node;
    for (const int cpu : all) {
      const auto found = std::find(left.begin(), left.end(), cpu);
      if (found == left.end()) continue;
      node.push_back(cpu);
      left.erase(found);
    }
    if (!node.empty()) nodes.push_back(std::move(node));
  }
  // CPUs that the machine does not describe form a node of their own.
  if (!left.empty()) nodes.push_back(left);
  return nodes;
}

std::vector<std::vector<int>> split_nodes(const CpuNodes& nodes, int devices, int cores_per_device) {
  const auto total = static_cast<int>(count(nodes));
  check(total > 0, "split_cpus: there are no CPUs to split");
  check(devices > 0, "split_cpus: {} devices requested, expected at least 1", devices);
  check(cores_per_device >= 0 && cores_per_device <= total,
        "split_cpus: {} cores per device requested, expected at most {}, which this process may use", cores_per_device,
        total);
  const int each = cores_per_device > 0 ? cores_per_device : std::max(1, total / devices);
  const bool disjoint = std::int64_t{devices} * each <= total;
  return (disjoint ? deal_by_node : deal_in_turn)(nodes, static_cast<std::size_t>(devices),
                                                  static_cast<std::size_t>(each));
}

LocalRank read_local_rank() {
  constexpr std::int64_t kMostRanks = 1 << 20;
  const bool has_rank = environment("LOCAL_RANK").has_value();
  const std::optional<std::int64_t> size = environment_integer("LOCAL_WORLD_SIZE", 1, kMostRanks);
  check(has_rank == size.has_value(), "{} is set but {} is not, expected both or neither",
        has_rank ? "LOCAL_RANK" : "LOCAL_WORLD_SIZE", has_rank ? "LOCAL_WORLD_SIZE" : "LOCAL_RANK");
  if (!size) return {};
  const std::int64_t rank = environment_integer("LOCAL_RANK", 0, *size - 1).value();
  return {static_cast<int>(rank), static_cast<int>(*size)};
}

std::vector<int> share_of_rank(const CpuNodes& nodes, std::optional<int> quota, LocalRank local) {
  const auto total = static_cast<int>(count(nodes));
  const int usable = std::min(total, quota.value_or(total));
  return split_nodes(nodes, local.size, std::max(1, usable / local.size))[static_cast<std::size_t>(local.rank)];
}

std::string binding_notice(std::string_view variable, std::string_view value, int mask, int machine) {
  std::string lower(value);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower.empty() || lower == "false" || mask >= machine) return {};
  return fmt::format(
      "{}={} binds the main thread, and with it all devices, to {} of {} CPUs; unset it: Lockstep binds its "
      "threads "
      "itself",
      variable, value, mask, machine);
}

}  // namespace lockstep
