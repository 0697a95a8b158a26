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
#include "lockstep/comm/time_limit.h"
#include "lockstep/comm/work.h"

namespace lockstep {

// Why a group is of no further use. (Named apart from engine/failure.h: Failure and Block are types of other layers.)
struct RankFailure {
  int culprit = -1;  // -1: no single rank
  std::string reason;
};

struct ConstBlock {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
};

struct MutableBlock {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
};

constexpr int kLanes = 2;  // one for each CommChannel
constexpr int kMaxRanks = 200;

class Mesh {
 public:
  virtual ~Mesh() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Every rank sends to[r] to each rank r, and receives from[r]; a rank's own entries do not count. Where from[r].data
  // is null it is set to where the block lies: memory of the mesh's own, valid until the next exchange of this lane.
  // With a header, waits for all ranks, also where blocks are empty, and throws where ranks differ in theirs. One
  // thread at a time for each lane; all ranks in one order.
  virtual void exchange(int lane, const CollectiveHeader* header, std::span<const ConstBlock> to,
                        std::span<MutableBlock> from, const TimeLimit& limit) = 0;
  // At most so many bytes in all (counting equal blocks once) that one exchange can send.
  virtual std::size_t capacity(int lane) const = 0;

  // Done when the message is on its way: the receiver keeps what it does not want yet. From any thread.
  virtual void send(int destination, int tag, Message message, const TimeLimit& limit) = 0;
  virtual Message receive(int source, int tag, const TimeLimit& limit) = 0;

  // A collective. Memory that all ranks see, zero at first; null where the back end has none.
  virtual std::shared_ptr<std::byte> shared_memory(std::size_t bytes, const TimeLimit& limit) = 0;
  // A collective of the ranks named (ascending, this one among them). `name` is new to this mesh.
  virtual std::unique_ptr<Mesh> split(const std::vector<int>& ranks, const std::string& name,
                                      std::chrono::milliseconds timeout) = 0;

  // The first failure counts, on whatever rank; all that is under way ends with it, on all ranks. From any thread.
  virtual void fail(const RankFailure& failure) = 0;
  virtual std::optional<RankFailure> failure() const = 0;
  // Whether there is a core for each rank, so that a thread that waits may spin.
  virtual bool may_spin() const = 0;
};

[[noreturn]] inline void throw_failure(const RankFailure& failure) {
  throw CommError(failure.reason, failure.culprit);
}

inline RankFailure lost(int rank, const std::string& why) {
  return {rank, fmt::format("rank {} lost ({})", rank, why)};
}
inline RankFailure no_answer(int rank, const TimeLimit& limit) {
  return lost(rank, "no answer within " + limit.str());
}
// When the time is over. `answers`: whether its process is known to be alive.
inline RankFailure overdue(int rank, bool answers, const TimeLimit& limit) {
  if (!answers) return no_answer(rank, limit);
  return {rank, fmt::format("rank {} hangs (alive, but has not come within {})", rank, limit.str())};
}
inline constexpr const char* kClosedConnection = "connection closed";
inline constexpr const char* kClosedGroup = "it closed its group";

inline RankFailure disagreement(int a, const CollectiveHeader& first, int b, const CollectiveHeader& second) {
  const std::string called = describe_fully(first), other = describe_fully(second);
  return {-1, fmt::format("ranks disagree: rank {} called {}, rank {} {}", a, called, b,
                          other == called ? "the same with other arguments" : other)};
}

}  // namespace lockstep
