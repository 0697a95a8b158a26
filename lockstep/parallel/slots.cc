#include "lockstep/parallel/slots.h"

namespace lockstep {

std::vector<Slot> slots_of(std::span<const std::int64_t> counts, std::span<const Device> devices,
                           const JobShares& shares, int rank) {
  std::vector<Slot> slots;
  const auto [first, last] = shares.of_rank(rank);
  for (int s = first; s < last; ++s) {
    // A rank without samples takes part in the collectives with one empty shard.
    const bool stand_in = s + 1 == last && slots.empty();
    if (counts[static_cast<std::size_t>(s)] == 0 && !stand_in) continue;
    slots.push_back({s, devices[device_of_shard(s - first, shares.devices_of(rank))]});
  }
  return slots;
}

}  // namespace lockstep
