// Internal: the ranks of one host, as the shared-memory transport sees them. They can share memory and send messages.
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

  // Sets the callback for a rank that vanished without a shutdown message. The callback runs on a thread of this
  // object, and never after the destructor.
  virtual void watch(std::function<void(const RankFailure&)> on_lost) = 0;
  // The same as ControlChannel::answers(). True for a thread, which runs as long as its process does.
  virtual bool answers(int /*rank*/) const { return true; }
  // A collective. Returns zeroed memory that all ranks see. The memory is freed when the last rank has released it or
  // died. A failure that `failure`, which is polled, reports ends the wait.
  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes, const TimeLimit& limit,
                                              const std::function<std::optional<RankFailure>()>& failure) = 0;
  // Sends a message. Waits while it would leave more than kMostUnreceived bytes unreceived, and polls `failure`.
  virtual void send(int destination, int tag, Message message, const TimeLimit& limit,
                    const std::function<std::optional<RankFailure>()>& failure) = 0;
  // The same as Mailbox::take().
  virtual std::optional<Message> receive(int source, int tag, const TimeLimit& limit,
                                         const std::function<bool()>& give_up) = 0;
  // The same as in Mailbox.
  virtual bool closed(int source) const = 0;
  virtual bool ended(int source) const = 0;
  // A collective of the named ranks.
  virtual std::unique_ptr<Peers> subgroup(const std::vector<int>& ranks, const std::string& name,
                                          const TimeLimit& limit) = 0;
};

// Makes the Peers of `size` ranks that are threads of this process, one object for each rank.
std::vector<std::unique_ptr<Peers>> make_thread_peers(int size);

}  // namespace lockstep
