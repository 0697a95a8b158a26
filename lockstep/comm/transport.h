// A back end moves blocks of bytes between the ranks of a group. Collectives are written once, over this.
//
// Everything here throws CommError, whose text is the cause alone ("rank 1 lost (connection closed)"); the group adds
// what it was doing.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/collective_header.h"
#include "lockstep/comm/mailbox.h"
#include "lockstep/net/comm_error.h"
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
constexpr int kMaxRanks = 200;

class Transport {
 public:
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Every rank sends to[r] to each rank r, and receives from[r]; a rank's own entries do not count. Where from[r].data
  // is null it is set to where the block lies: memory of the transport's own, valid until the next exchange of this channel.
  // With a header, waits for all ranks, also where blocks are empty, and throws where ranks differ in theirs. One
  // thread at a time for each channel; all ranks in one order.
  virtual void exchange(int channel, const CollectiveHeader* header, std::span<const ConstBlock> to,
                        std::span<MutableBlock> from, const TimeLimit& limit) = 0;
  // At most so many bytes in all (counting equal blocks once) that one exchange can send.
  virtual std::size_t capacity(int channel) const = 0;

  // Done when the message is on its way: the receiver keeps what it does not want yet. From any thread.
  virtual void send(int destination, int tag, Message message, const TimeLimit& limit) = 0;
  virtual Message receive(int source, int tag, const TimeLimit& limit) = 0;

  // A collective. Memory that all ranks see, zero at first; null where the back end has none.
  virtual std::shared_ptr<std::byte> shared_memory(std::size_t bytes, const TimeLimit& limit) = 0;
  // A collective of the ranks named (ascending, this one among them). `name` is new to this transport.
  virtual std::unique_ptr<Transport> split(const std::vector<int>& ranks, const std::string& name,
                                      std::chrono::milliseconds timeout) = 0;

  // The first failure counts, on whatever rank; all that is under way ends with it, on all ranks. From any thread.
  virtual void fail(const RankFailure& failure) = 0;
  virtual std::optional<RankFailure> failure() const = 0;
  // Whether there is a core for each rank, so that a thread that waits may spin.
  virtual bool may_spin() const = 0;
};

inline RankFailure disagreement(int a, const CollectiveHeader& first, int b, const CollectiveHeader& second) {
  const std::string called = describe_fully(first), other = describe_fully(second);
  return {-1, fmt::format("ranks disagree: rank {} called {}, rank {} {}", a, called, b,
                          other == called ? "the same with other arguments" : other)};
}

}  // namespace lockstep
