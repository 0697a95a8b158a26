#include <hwloc.h>
#include <unistd.h>

#include <map>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/device/machine.h"

namespace lockstep {
namespace {

class Topology {
 public:
  Topology() {
    check(hwloc_topology_init(&topology_) == 0, "topology: hwloc cannot start");
    // Without /sys (a bare chroot), hwloc would print an error and use CPUs without their nodes.
    if (::access("/sys/devices/system/cpu", R_OK) != 0 && !environment("HWLOC_FSROOT")) {
      (void)hwloc_topology_set_components(topology_, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "linux");
    }
    if (hwloc_topology_load(topology_) != 0) {
      hwloc_topology_destroy(topology_);
      fail("topology: hwloc cannot read this machine");
    }
  }
  ~Topology() { hwloc_topology_destroy(topology_); }
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;
  hwloc_topology_t get() const { return topology_; }

 private:
  hwloc_topology_t topology_ = nullptr;
};

}  // namespace

CpuNodes machine_cpus() {
  const Topology topology;
  std::map<int, std::size_t> index;  // index in `nodes`, by NUMA node
  CpuNodes nodes;
  for (hwloc_obj_t pu = nullptr; (pu = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_PU, pu));) {
    const auto [node, is_new] = index.try_emplace(hwloc_bitmap_first(pu->nodeset), nodes.size());
    if (is_new) nodes.emplace_back();
    nodes[node->second].push_back(static_cast<int>(pu->os_index));
  }
  return nodes;
}

std::string machine_model() {
  const Topology topology;
  const hwloc_obj_t package = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_PACKAGE, nullptr);
  const hwloc_obj_t object = package ? package : hwloc_get_root_obj(topology.get());
  const char* model = hwloc_obj_get_info_by_name(object, "CPUModel");
  return model ? model : "";
}

}  // namespace lockstep
