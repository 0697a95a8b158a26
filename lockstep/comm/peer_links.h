// One connection with every other rank, for what is rare: messages between two ranks, who failed, who is gone. A thread
// reads them all, so that the death of a rank is seen at once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/comm/mesh.h"

namespace lockstep {

class PeerLinks {
 public:
  // sockets[r]: connected with rank r, not blocking; this rank's own place is empty.
  PeerLinks(int rank, std::vector<FileDescriptor> sockets);
  // Says goodbye.
  ~PeerLinks();

  // Hears of a rank that is gone without a goodbye, and of failures that others tell; of earlier ones at once. Called
  // from the reading thread.
  void watch(std::function<void(const RankFailure&)> on_failure);

  void send(int destination, int tag, const Message& message, const TimeLimit& limit);
  Mailbox& mailbox() { return mailbox_; }
  // The rank said goodbye.
  bool departed(int rank) const;
  // Who answers no question, asked when `suspect` has not come in time: it may itself wait for another one, whose process
  // stands still or cannot be reached any more. `suspect`, if all answer.
  int silent_rank(int suspect);
  // Those to whom it can be told without waiting.
  void tell_failure(const RankFailure& failure);

  // Unix sockets only: the other process gets a descriptor of its own for the same thing.
  void send_descriptor(int destination, int number, const FileDescriptor& descriptor, const TimeLimit& limit);
  // Throws what became of the source, what `failure` says when it is asked now and then, or that the time is over. Empty
  // where this process may have no more descriptors.
  FileDescriptor receive_descriptor(int source, int number, const TimeLimit& limit,
                                    const std::function<std::optional<RankFailure>()>& failure);

 private:
  struct Frame;
  struct Peer;

  std::optional<RankFailure> first_failure() const;
  void read_all();
  // False: the connection is closed.
  bool read_some(int rank);
  void handle_frame(int rank);
  void report(const RankFailure& failure);
  void send_frame(int destination, const Frame& frame, const std::byte* data, int descriptor, const TimeLimit& limit);
  // All of it at once, or not at all: a line that took a part of it is closed.
  bool try_send_frame(int destination, const Frame& frame, const std::byte* data);

  const int rank_;
  std::vector<std::unique_ptr<Peer>> peers_;
  FileDescriptor stop_;
  Mailbox mailbox_;
  mutable std::mutex mutex_;
  std::function<void(const RankFailure&)> on_failure_;
  std::optional<RankFailure> first_failure_;
  std::map<std::pair<int, int>, FileDescriptor> descriptors_;  // by source and number
  std::thread reader_;
};

}  // namespace lockstep
