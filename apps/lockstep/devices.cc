#include <unistd.h>

#include <cstdio>

#include "apps/lockstep/commands.h"
#include "apps/lockstep/options/train_options.h"
#include "apps/lockstep/output.h"
#include "lockstep/base/count_of.h"
#include "lockstep/comm/device_links.h"
#include "lockstep/device/gpu.h"

namespace lockstep::app {
namespace {

std::string cores(const std::vector<int>& cpus) {
  std::string s;
  for (std::size_t i = 0; i < cpus.size(); ++i) s += (i ? "," : "") + std::to_string(cpus[i]);
  return s;
}

}  // namespace

Command add_devices(CLI::App& parent) {
  auto* app = parent.add_subcommand("devices", "List the devices: name, kind, cores or GPU model, memory");
  auto options = std::make_shared<TrainOptions>();
  options->open_shards = OpenShards::of_devices;  // a list of devices has no batch
  options->add_to(*app, {"--devices", "--num-devices", "--cores-per-device"});
  return [options] {
    ToolJob job = make_job(*options);
    for (Device device : job.devices()) {
      const DeviceInfo& info = *device.info();
      const double gibibytes = static_cast<double>(info.memory_bytes) / (1 << 30);
      if (info.kind == DeviceKind::cuda) {
        print_out("{}  cuda  {}  {:.1f} GiB\n", info.name, info.model, gibibytes);
      } else {
        print_out("{}  cpu  {} ({}) of {}  {:.1f} GiB\n", info.name, count_of(std::ssize(info.cpus), "core"),
                  cores(info.cpus), info.model, gibibytes);
      }
    }
    // Tells people at a terminal; scripts read only the list.
    if (::isatty(STDERR_FILENO)) {
      if (const GpuList found = find_gpus(); found.gpus.empty()) {
        print_text(stderr, fmt::format("no GPU: {}\n", found.why_none));
      } else if (const NcclInfo nccl = find_nccl(); nccl.version == 0) {
        print_text(stderr, fmt::format("no NCCL between ranks: {}\n", nccl.why_none));
      }
    }
    return 0;
  };
}

}  // namespace lockstep::app
