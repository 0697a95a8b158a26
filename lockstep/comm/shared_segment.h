// Internal: the shared memory of the ranks of one host: flags, headers, and staging buffers. It holds no pointers,
// because each rank sees it at another address.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "lockstep/comm/collective_header.h"
#include "lockstep/comm/transport.h"

namespace lockstep {

// Layout of the memory. Zeroed memory is the initial state.
class SharedSegment {
 public:
  static constexpr std::size_t kStaging[kChannels] = {std::size_t{64} << 10, std::size_t{512} << 10};

  struct alignas(64) Channel {
    // Number of complete exchanges times kExchange. The lower bits count alarms: a rank failed or left.
    alignas(64) std::atomic<std::uint32_t> state;
    static constexpr std::uint32_t kExchange = 256;
    alignas(64) std::atomic<std::uint32_t> arrived;  // number of ranks that have reached the current exchange
    std::atomic<std::uint32_t> sleepers;
  };

  // Data of one rank in one channel, twice: for odd and for even exchanges. A rank is never two exchanges ahead of
  // another rank, so no rank reads the place that it writes next.
  struct alignas(64) RankChannel {
    std::atomic<std::uint32_t> exchange;  // number of the exchange that the rank has reached
    CollectiveHeader headers[2];
  };

  // One cpu_set_t has room for 1,024 CPUs.
  using CpuMask = std::array<cpu_set_t, 8>;

  struct alignas(64) Rank {
    RankChannel channels[kChannels];
    std::atomic<std::uint32_t> departed;
    CpuMask cpus;
  };

  struct alignas(64) Shared {
    static constexpr std::uint32_t kNone = 0, kBeingWritten = 1, kWritten = 2;
    Channel channels[kChannels];
    std::atomic<std::uint32_t> failed;
    std::int32_t culprit;
    char reason[1012];
  };

  SharedSegment(std::shared_ptr<std::byte> memory, int ranks) : memory_(std::move(memory)), ranks_(ranks) {}
  static std::size_t bytes(int ranks);

  Channel& channel(int channel) const { return shared().channels[channel]; }
  Rank& rank(int r) const { return reinterpret_cast<Rank*>(memory_.get() + sizeof(Shared))[r]; }
  RankChannel& rank_channel(int channel, int r) const { return rank(r).channels[channel]; }
  // kStaging[channel] bytes. A table before them (offsets()) says where each rank's block begins.
  std::byte* staging(int channel, int r, unsigned parity) const;
  std::uint32_t* offsets(int channel, int r, unsigned parity) const;

  // Notes a failure and wakes all ranks. Only the first failure counts.
  void fail(const RankFailure& failure) const;
  // The reason if a rank died while it wrote its reason.
  static constexpr const char* kLostInReport = "a rank was lost while it reported a failure";
  std::optional<RankFailure> failure() const;
  void depart(int r) const;

 private:
  static std::size_t table_bytes(int ranks) { return (static_cast<std::size_t>(ranks) * 4 + 63) / 64 * 64; }
  Shared& shared() const { return *reinterpret_cast<Shared*>(memory_.get()); }
  void alarm() const;

  std::shared_ptr<std::byte> memory_;
  int ranks_;
};

}  // namespace lockstep
