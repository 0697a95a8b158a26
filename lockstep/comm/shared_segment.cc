#include "lockstep/comm/shared_segment.h"

#include <thread>

#include "lockstep/base/futex.h"

namespace lockstep {

std::size_t SharedSegment::bytes(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  std::size_t total = sizeof(Shared) + n * sizeof(Rank);
  for (std::size_t staging : kStaging) total += n * 2 * (table_bytes(ranks) + staging);
  return total;
}

std::byte* SharedSegment::staging(int channel, int r, unsigned parity) const {
  std::size_t offset = sizeof(Shared) + static_cast<std::size_t>(ranks_) * sizeof(Rank);
  for (int l = 0; l < channel; ++l)
    offset += static_cast<std::size_t>(ranks_) * 2 * (table_bytes(ranks_) + kStaging[l]);
  const std::size_t index = static_cast<std::size_t>(r) * 2 + parity;
  return memory_.get() + offset + index * (table_bytes(ranks_) + kStaging[channel]) + table_bytes(ranks_);
}

std::uint32_t* SharedSegment::offsets(int channel, int r, unsigned parity) const {
  return reinterpret_cast<std::uint32_t*>(staging(channel, r, parity) - table_bytes(ranks_));
}

void SharedSegment::fail(const RankFailure& failure) const {
  std::uint32_t none = Shared::kNone;
  if (!shared().failed.compare_exchange_strong(none, Shared::kBeingWritten)) return;
  shared().culprit = failure.culprit;
  failure.reason.copy(shared().reason, sizeof shared().reason - 1);
  shared().failed.store(Shared::kWritten);
  alarm();
}

std::optional<RankFailure> SharedSegment::failure() const {
  if (shared().failed.load() == Shared::kNone) return std::nullopt;
  // The process that writes the reason may have died meanwhile.
  for (int i = 0; shared().failed.load() != Shared::kWritten; ++i) {
    if (i == 1000) return RankFailure{-1, kLostInReport};
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return RankFailure{shared().culprit, shared().reason};
}

void SharedSegment::depart(int r) const {
  rank(r).departed.store(1);
  alarm();
}

void SharedSegment::alarm() const {
  for (int l = 0; l < kChannels; ++l) {
    channel(l).state.fetch_add(1);
    futex_wake_all(channel(l).state, FutexScope::shared_memory);
  }
}

}  // namespace lockstep
