#include "lockstep/parallel/split.h"

#include <algorithm>

#include "lockstep/autograd/placement.h"
#include "lockstep/parallel/balance.h"
#include "lockstep/parallel/slots.h"

namespace lockstep {

int default_shards(std::int64_t batch_size) {
  constexpr int kMostShards = 8;
  constexpr std::int64_t kSamplesOfShard = 16;
  int shards = 1;
  while (shards < kMostShards && batch_size / (2 * shards) >= kSamplesOfShard) shards *= 2;
  return shards;
}

std::vector<std::int64_t> split_sizes(std::int64_t n, int shards) {
  check(n >= 0 && shards >= 1, "split: {} samples into {} shards, expected at least 0 into at least 1", n, shards);
  std::int64_t chunk = (n + shards - 1) / shards;
  std::vector<std::int64_t> sizes;
  for (std::int64_t first = 0; first < n; first += chunk) sizes.push_back(std::min(chunk, n - first));
  return sizes;
}

Tensor split_and_load(const Tensor& x, std::span<const Device> devices, const SplitOptions& options) {
  check(!devices.empty(), "split_and_load: no devices");
  check(options.shards >= 0, "split_and_load: {} shards, expected at least 1", options.shards);
  const int count = static_cast<int>(devices.size());
  const JobShares shares(options.shards > 0 ? options.shards : count, {&count, 1},
                         options.balance.fixed_weights("split_and_load"));
  return split_and_load(x, devices, shares.devices_of(0));
}

Tensor split_and_load(const Tensor& given, std::span<const Device> devices, std::span<const int> shares) {
  // A parameter may be the batch.
  const bool parameter = given.defined() && given->kind == Kind::replicated && !given->at && !devices.empty();
  const Tensor x = parameter ? given.to(devices[0]) : given;
  check(!x.defined() || x->kind == Kind::whole,
        "split_and_load: {} is already cut or replicated, expected a whole tensor: batches of loader.on(net) and of a "
        "Trainer go to the model itself, not to its DataParallel",
        x);
  check(x.defined() && x.shape().dim() >= 1 && x.size(0) > 0,
        "split_and_load: the batch is {}, expected at least one sample, on axis 0", x);
  check(shares.size() == devices.size() && std::ranges::all_of(shares, [](int share) { return share >= 0; }),
        "split_and_load: shares of {} devices, expected {} numbers of at least 0", shares.size(), devices.size());
  const JobShares whole(std::vector<std::vector<int>>{{shares.begin(), shares.end()}});
  std::vector<std::int64_t> rows = split_sizes(x.size(0), whole.shards());
  rows.resize(static_cast<std::size_t>(whole.shards()));
  std::vector<Slot> slots = slots_of(rows, devices, whole, 0);
  return scatter(x, std::make_shared<Placement>(std::move(rows), std::move(slots)));
}

}  // namespace lockstep
