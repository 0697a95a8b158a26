#include "lockstep/runtime/runtime.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/device/gpu.h"
#include "lockstep/device/topology.h"

namespace lockstep {
namespace {

constexpr int kMostDevices = 1024;

int number(std::string_view item, std::string_view text) {
  return static_cast<int>(parse_integer(fmt::format("device '{}'", item), text, 0, kMostDevices - 1));
}

// Never falls back to the CPU if the machine may have GPUs.
GpuList gpus_that_work() {
  GpuList found = find_gpus();
  check(!found.failed, "looking for GPUs: {}. To use the CPU, name its devices: cpu, cpu:0", found.why_none);
  return found;
}

}  // namespace

DeviceList parse_device_list(std::string_view list) {
  DeviceList found;
  RuntimeOptions& o = found.options;
  bool whole = false;  // a GPU as one device
  for (std::string_view rest = list;; rest.remove_prefix(rest.find(',') + 1)) {
    const std::string_view item = rest.substr(0, rest.find(','));
    ++found.count;
    if (item.starts_with("cpu:")) {
      o.cpu_devices = std::max(o.cpu_devices, number(item, item.substr(4)) + 1);
    } else if (item.starts_with("cuda:")) {
      const std::string_view place = item.substr(5);
      const std::size_t slash = place.find('/');
      const int gpu = number(item, place.substr(0, slash));
      if (std::ranges::find(o.cuda, gpu) == o.cuda.end()) o.cuda.push_back(gpu);
      whole |= slash == std::string_view::npos;
      if (slash != std::string_view::npos)
        o.cuda_logical = std::max(o.cuda_logical, number(item, place.substr(slash + 1)) + 1);
    } else {
      fail(
          "unknown device '{}' in '{}': expected cpu:0, cpu:1, ..., cuda:0, ..., or cuda:0/0, cuda:0/1, ... (logical "
          "devices "
          "of a GPU), comma-separated",
          item, list);
    }
    if (rest.find(',') == std::string_view::npos) break;
  }
  check(!whole || o.cuda_logical == 0, "devices '{}': whole and logical GPUs are both listed, expected one kind", list);
  return found;
}

int device_count() { return static_cast<int>(gpus_that_work().gpus.size()); }

DeviceList find_devices(int count) {
  const GpuList found = gpus_that_work();
  std::vector<std::string> left_out;
  for (const UnusableGpu& gpu : found.left_out) left_out.push_back(gpu.why);
  if (found.gpus.empty()) return {std::max(count, 1), {.cpu_devices = std::max(count, 1)}, std::move(left_out)};
  const LocalRank local = read_local_rank();
  const auto bound = [&](int rank) {
    return found.gpus.size() * static_cast<std::size_t>(rank) / static_cast<std::size_t>(local.size);
  };
  const std::span<const GpuInfo> own =
      std::span(found.gpus)
          .subspan(bound(local.rank), std::max<std::size_t>(1, bound(local.rank + 1) - bound(local.rank)));
  const auto gpus = static_cast<int>(own.size());
  DeviceList list{count > 0 ? count : gpus, {}, std::move(left_out)};
  for (const GpuInfo& gpu : own.first(static_cast<std::size_t>(std::min(gpus, list.count)))) {
    list.options.cuda.push_back(gpu.index);
  }
  if (list.count > gpus) list.options.cuda_logical = (list.count + gpus - 1) / gpus;
  return list;
}

}  // namespace lockstep
