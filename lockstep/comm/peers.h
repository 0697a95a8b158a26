// Ranks of one host, as far as shared memory needs them: how they come by memory that all of them see, and by messages.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/transport.h"

namespace lockstep {

class Peers {
 public:
  virtual ~Peers() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // `on_lost` hears of a rank that is gone without a word. Called from a thread of the peers's own, at most
  // until it is destroyed.
  virtual void watch(std::function<void(const RankFailure&)> on_lost) = 0;
  // As ControlChannel::answers(). A thread does not stand still alone.
  virtual bool answers(int /*rank*/) const { return true; }
  // A collective: zeroed memory that all ranks see, gone when the last one has let it go or died. `failure`, asked now
  // and then, ends the wait for it.
  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes, const TimeLimit& limit,
                                              const std::function<std::optional<RankFailure>()>& failure) = 0;
  virtual void send(int destination, int tag, Message message, const TimeLimit& limit) = 0;
  virtual Mailbox& mailbox() = 0;
  // A collective of the ranks named.
  virtual std::unique_ptr<Peers> split(const std::vector<int>& ranks, const std::string& name,
                                              const TimeLimit& limit) = 0;
};

// Ranks as threads: one peers for each of `size`.
std::vector<std::unique_ptr<Peers>> make_thread_peers(int size);

}  // namespace lockstep
