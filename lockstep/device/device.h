// Names of devices. A device has its own memory and its own lanes, which are queues of work. Runtime makes devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

enum class DeviceKind { cpu, cuda };

// Properties of a device. A Runtime makes it, keeps it alive, and derives its own state from it.
struct DeviceInfo {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;     // 1 for "cpu:1"; counts the logical devices of all GPUs together
  std::string name;  // "cpu:0"
  // The cores that compute for a CPU device, or the cores nearest to a GPU. Devices may share cores.
  std::vector<int> cpus;
  std::string model;             // the processor's name
  std::size_t memory_bytes = 0;  // of the machine, or the device's share of its GPU
  // GpuInfo::index and uuid of the GPU; logical devices have those of their GPU. -1 and empty for a CPU device.
  int gpu = -1;
  std::string gpu_uuid;

  virtual ~DeviceInfo() = default;
};

// A handle to pass by value. It is valid as long as the Runtime that made it. A default-constructed Device (kHost) is
// host memory, which the calling thread reads and writes directly.
class Device {
 public:
  Device() = default;
  explicit Device(const DeviceInfo* info) : info_(info) {}

  bool is_host() const { return info_ == nullptr; }
  // "cpu:0", "cuda:0", "cuda:0/1"; "host" for host memory.
  std::string_view name() const { return info_ ? std::string_view(info_->name) : "host"; }
  std::string str() const { return std::string(name()); }
  // Returns `cpu` for host memory.
  DeviceKind kind() const { return info_ ? info_->kind : DeviceKind::cpu; }
  // Whether the host can dereference pointers into the device's memory.
  bool host_visible() const { return kind() == DeviceKind::cpu; }
  // Returns -1 for host memory.
  int index() const { return info_ ? info_->index : -1; }
  // Returns null for host memory.
  const DeviceInfo* info() const { return info_; }

  // Equal handles name the same device of the same Runtime.
  bool operator==(const Device&) const = default;

 private:
  const DeviceInfo* info_ = nullptr;
};

// Host memory.
inline constexpr Device kHost{};

// Counters of a device's memory: see Runtime::memory().
struct MemoryCounters {
  std::size_t reserved_bytes = 0;  // taken from the system
  std::size_t used_bytes = 0;      // the part of reserved_bytes that tensors hold
  std::size_t peak_used_bytes = 0;
  std::size_t scratch_bytes = 0;  // used by a GPU's kernels, in addition to reserved_bytes
  std::int64_t system_allocations = 0;

  // Bytes kept for later allocations.
  std::size_t cached_bytes() const { return reserved_bytes - used_bytes; }
};

}  // namespace lockstep
