#include "lockstep/autograd/shard_exchange.h"

namespace lockstep {

std::vector<ops::BatchStats> gather_stats(ShardExchange& exchange, std::span<const ops::BatchStats> parts,
                                          std::int64_t pixels) {
  const auto& counts = exchange.counts();
  std::vector<std::vector<Tensor>> tensors(counts.size());
  for (std::size_t s = 0; s < parts.size(); ++s) {
    if (parts[s].mean.defined()) tensors[s] = {parts[s].mean, parts[s].m2};
  }
  tensors = exchange.gather(std::move(tensors), "batch norm statistics");
  std::vector<ops::BatchStats> all(counts.size());
  for (std::size_t s = 0; s < all.size(); ++s) {
    if (!tensors[s].empty()) all[s] = {counts[s] * pixels, tensors[s][0], tensors[s][1]};
  }
  return all;
}

}  // namespace lockstep
