// Internal: a transport moves blocks of bytes between the ranks of a group. All collectives are written once, on top of
// it.
//
// Everything here throws CommError. Its text is only the cause ("rank 1 lost (connection closed)"); the group adds the
// operation.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/collective_header.h"
#include "lockstep/comm/mailbox.h"
#include "lockstep/launch/launch_environment.h"
#include "lockstep/net/rank_failure.h"
#include "lockstep/net/time_limit.h"

namespace lockstep {

struct ConstBlock {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
};

struct MutableBlock {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

constexpr int kChannels = 2;  // one for each CommChannel

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Every rank sends to[r] to each rank r and receives from[r]; a rank's own entries are ignored. If from[r].data is
  // null, exchange() sets it to the block's address in the transport's own memory, which is valid until this channel's
  // next exchange. With a header, waits for all ranks, even if blocks are empty, and throws if their headers differ.
  // One thread at a time may use a channel, and all ranks must use it in the same order.
  virtual void exchange(int channel, const CollectiveHeader* header, std::span<const ConstBlock> to,
                        std::span<MutableBlock> from, const TimeLimit& limit) = 0;
  // The most bytes that one exchange can send, counting equal blocks once.
  virtual std::size_t capacity(int channel) const = 0;

  // Returns when the message is in flight; the receiver stores it until receive(). Safe from any thread.
  virtual void send(int destination, int tag, Message message, const TimeLimit& limit) = 0;
  virtual Message receive(int source, int tag, const TimeLimit& limit) = 0;

  // A collective. Returns zeroed memory that all ranks see, or null if the transport has none.
  virtual std::shared_ptr<std::byte> shared_memory(std::size_t bytes, const TimeLimit& limit) = 0;
  // A collective of the given ranks (ascending, this rank included). `name` must be new to this transport.
  virtual std::unique_ptr<Transport> subgroup(const std::vector<int>& ranks, const std::string& name,
                                              std::chrono::milliseconds timeout) = 0;

  // Ends all operations in progress on all ranks. Only the first failure on any rank counts. Safe from any thread.
  virtual void fail(const RankFailure& failure) = 0;
  virtual std::optional<RankFailure> failure() const = 0;
  // Whether there is a core for each rank, so that waiting threads may spin.
  virtual bool may_spin() const = 0;
};

inline RankFailure disagreement(int a, const CollectiveHeader& first, int b, const CollectiveHeader& second) {
  const std::string called = describe_fully(first), other = describe_fully(second);
  return {-1, fmt::format("ranks disagree: rank {} called {}, rank {} {}", a, called, b,
                          other == called ? "the same with other arguments" : other)};
}

inline RankFailure receive_beside_closing(int rank, int source) {
  return {-1, fmt::format("ranks disagree: rank {} receives from rank {}, which is closing the group", rank, source)};
}

}  // namespace lockstep
