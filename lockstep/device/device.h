// A device: something with its own memory and its own queue of work.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

enum class DeviceKind { cpu, cuda };

// What there is to know about a device. A Runtime makes it, keeps it alive and derives its own state from it.
struct DeviceInfo {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  std::string name;  // "cpu:0"
  // The cores whose threads compute on a CPU device; those nearest to it for a GPU. May be shared between
  // devices.
  std::vector<int> cpus;
  std::string model;
  std::size_t memory_bytes = 0;
  // Of a GPU, or of the one that it is a logical device of: GpuInfo::index and uuid.
  int gpu = -1;
  std::string gpu_uuid;

  virtual ~DeviceInfo() = default;
};

// A handle, to be passed by value; valid as long as the Runtime that made it. The default one stands for no
// device: plain host memory, which the calling thread uses itself.
class Device {
 public:
  Device() = default;
  explicit Device(const DeviceInfo* info) : info_(info) {}

  bool is_host() const { return info_ == nullptr; }
  std::string_view name() const { return info_ ? std::string_view(info_->name) : "host"; }
  DeviceKind kind() const { return info_ ? info_->kind : DeviceKind::cpu; }
  // Whether the host can follow pointers into its memory.
  bool host_visible() const { return kind() == DeviceKind::cpu; }
  int index() const { return info_ ? info_->index : -1; }
  // Null for the host.
  const DeviceInfo* info() const { return info_; }

  bool operator==(const Device&) const = default;

 private:
  const DeviceInfo* info_ = nullptr;
};

// Host memory.
inline constexpr Device kHost{};

}  // namespace lockstep
