#include "lockstep/parallel/batches.h"

#include <algorithm>

#include "lockstep/autograd/parameter_gradient.h"
#include "lockstep/base/warning.h"

namespace lockstep {

std::shared_ptr<BatchSplitter> splitter_for(const Module& model, SplitOptions options, std::int64_t batch_size) {
  for (const auto& [name, p] : model.named_parameters()) {
    check(p.gradient_state().reducer() == nullptr,
          "loader.on: DistributedDataParallel has {}: expected loader.on(ddp), whose batches are cut over the ranks",
          name);
  }
  const std::vector<Device> devices = model.devices();
  if (options.shards == 0 && std::ranges::none_of(devices, [](Device d) { return d.kind() == DeviceKind::cuda; })) {
    options.shards = default_shards(batch_size);
    if (options.shards < std::ssize(devices)) {
      warn("idle devices",
           fmt::format("loader.on: a batch of {} makes {} shard{} for {} devices, leaving {} without work: expected "
                       "larger batches, or a number of shards",
                       batch_size, options.shards, options.shards == 1 ? "" : "s", devices.size(),
                       std::ssize(devices) - options.shards));
    }
  }
  return std::make_shared<BatchSplitter>(devices, options);
}

}  // namespace lockstep
