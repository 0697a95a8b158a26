// Internal: what a rank has sent to each other rank, and how long its operations between ranks took.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/comm/process_group.h"
#include "lockstep/comm/transport.h"

namespace lockstep {

struct LinkTraffic {
  // Bytes sent to each rank; 0 to itself. What ranks read in shared memory without a copy does not count, nor does
  // NCCL's traffic, which does not go through the transport.
  std::vector<std::uint64_t> sent_bytes;
  // Time in exchanges with other ranks, most of which is waiting for the slowest rank. Times of several threads add up.
  std::chrono::nanoseconds exchanging{0};
};

// Returns the traffic since the group was made, including the groups of the same ranks that were made from it. Empty
// for groups of one rank. Safe from any thread.
LinkTraffic link_traffic(const ProcessGroup& group);

class LinkCounters {
 public:
  explicit LinkCounters(int ranks) : sent_(static_cast<std::size_t>(ranks)) {}

  void sent(std::size_t to, std::size_t bytes) { sent_[to].fetch_add(bytes, std::memory_order_relaxed); }
  void exchanged(std::chrono::nanoseconds time) { exchanging_ns_.fetch_add(time.count(), std::memory_order_relaxed); }
  LinkTraffic read() const;

 private:
  std::vector<std::atomic<std::uint64_t>> sent_;
  std::atomic<std::int64_t> exchanging_ns_{0};
};

// Returns a transport that counts what goes through it.
std::unique_ptr<Transport> counting_transport(std::unique_ptr<Transport> transport,
                                              std::shared_ptr<LinkCounters> counters);

}  // namespace lockstep
