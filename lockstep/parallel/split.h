// Cuts a global batch into shards and assigns them to devices, in equal shares or by weights.
//
//   Tensor x = split_and_load(batch[0], devices, {.shards = 8});
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/autograd/tensor.h"
#include "lockstep/parallel/balance.h"

namespace LOCKSTEP_API lockstep {

struct SplitOptions {
  // V of the recipe: the number of shards; 0: one for each device, or in loader.on(net) on CPUs default_shards() of the
  // batch size. The bits depend on V, not on the devices.
  int shards = 0;
  // How many shards each device gets: equal shares, or shares by weights, {.weights = {2, 1}}. Only Trainer takes
  // automatic shares, by measured speed; for a loop of your own, see Balancer.
  Balance balance{};
};

// The default V: the largest power of two from 1 to 8 that leaves at least 16 samples per shard. It depends on the
// batch alone, so training has the same bits on one device and on eight. default_shards(128) is 8, default_shards(100)
// is 4.
int default_shards(std::int64_t batch_size);

// Cuts axis 0 into chunks of ceil(n / V) samples (the last ones may be short or missing) and copies each to its device.
// Each device gets consecutive shards; without weights, shard s goes to devices[floor(s * D / V)], where D is the
// number of devices. x may be in host memory, on any device, or a parameter. Copies are asynchronous: they keep the
// host memory alive; do not change it until they are done. Differentiable. Throws if there are no devices, if x has no
// samples or is cut or replicated already, if `shards` is negative, or if the weights are not one positive number per
// device.
Tensor split_and_load(const Tensor& x, std::span<const Device> devices, const SplitOptions& options = {});
// Does the same with these numbers of shards, one for each device, such as Balancer's.
Tensor split_and_load(const Tensor& x, std::span<const Device> devices, std::span<const int> shares);

// The sizes of the chunks that n samples are cut into: split_sizes(10, 3) is 4 4 2, split_sizes(10, 8) is 2 2 2 2 2.
// Throws if n is negative or `shards` is below 1.
std::vector<std::int64_t> split_sizes(std::int64_t n, int shards);

}  // namespace lockstep
