#include "lockstep/parallel/split.h"

#include <algorithm>

#include "lockstep/autograd/placement.h"
#include "lockstep/parallel/balance.h"

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

Tensor split_and_load(const Tensor& x, std::span<const Device> devices, SplitOptions options) {
  check(!devices.empty(), "split_and_load: no devices");
  check(!x.defined() || x.kind() == Kind::whole,
        "split_and_load: {} is already cut or replicated, expected a whole tensor", x);
  check(x.defined() && x.shape().dim() >= 1 && x.size(0) > 0,
        "split_and_load: the batch is {}, expected at least one sample, on axis 0", x);
  check(options.shards >= 0, "split_and_load: {} shards, expected at least 1", options.shards);
  const int shards = options.shards > 0 ? options.shards : static_cast<int>(devices.size());
  std::vector<std::int64_t> rows = split_sizes(x.size(0), shards);
  const int count = static_cast<int>(devices.size());
  const JobShares shares(shards, {&count, 1}, options.balance);
  std::vector<Slot> slots;
  for (int s = 0; s < std::ssize(rows); ++s) slots.push_back({s, devices[device_of_shard(s, shares.devices_of(0))]});
  rows.resize(static_cast<std::size_t>(shards));
  return scatter(x, std::make_shared<Placement>(std::move(rows), std::move(slots)));
}

}  // namespace lockstep
