// One connection with every other rank, for rare messages: those between two ranks, failures, goodbyes. One thread
// reads all of them, so that a rank sees the death of another one at once. The thread also sends a sign of life on each
// connection, even while the other threads of its rank are busy. So a rank is lost when its process stands still or is
// out of reach, and not when it works.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/comm/transport.h"

namespace lockstep {

class ControlChannel {
 public:
  // sockets[r]: connected with rank r, not blocking; this rank's own place is empty. `silence`: a rank is
  // lost when nothing is heard of it for so long.
  ControlChannel(int rank, std::vector<FileDescriptor> sockets, std::chrono::milliseconds silence);
  // Says goodbye.
  ~ControlChannel();

  // Hears of a rank that is gone without a goodbye or silent, and of failures that others tell; of earlier ones at
  // once. Called from the reading thread.
  void watch(std::function<void(const RankFailure&)> on_failure);

  void send(int destination, int tag, const Message& message, const TimeLimit& limit);
  Mailbox& mailbox() { return mailbox_; }
  // The rank said goodbye.
  bool departed(int rank) const;
  // Whether something was heard of the rank's process lately.
  bool answers(int rank) const;
  // Nothing else is sent from now on: what waits for a rank that does not read ends with this failure.
  void tell_failure(const RankFailure& failure);

  // Unix sockets only: the other process gets a descriptor of its own for the same thing.
  void send_descriptor(int destination, int number, const FileDescriptor& descriptor, const TimeLimit& limit);
  // Throws what became of the source, what `failure` says when it is asked now and then, or that the time is over.
  // Empty where this process may have no more descriptors.
  FileDescriptor receive_descriptor(int source, int number, const TimeLimit& limit,
                                    const std::function<std::optional<RankFailure>()>& failure);

 private:
  struct Frame;
  struct Peer;

  std::optional<RankFailure> first_failure() const;
  void read_all();
  // Sends a sign of life to all ranks, and counts for each how many turns it has been silent. Turns and not the clock:
  // a process that stood still itself blames no other.
  void beat();
  // False: the connection is closed.
  bool read_some(int rank);
  void handle_frame(int rank);
  void report(const RankFailure& failure);
  void send_frame(int destination, const Frame& frame, const std::byte* data, int descriptor, const TimeLimit& limit);
  // To each rank as far as its socket takes it without waiting; the rest goes before the next frame.
  void tell_all(const Frame& frame, const std::byte* data);
  // Unless something else is under way.
  void try_send_sign_of_life(int destination);
  // Both are called with the peer's lock. Keeps a frame, and its data, from byte `sent` on.
  static void keep_rest(Peer& peer, const Frame& frame, const std::byte* data, std::size_t sent);
  // Sends what was kept, as far as it goes without waiting. False, with errno: some is left still.
  static bool send_rest(Peer& peer);
  // The same, for the reading thread, which leaves that to a thread that is sending already.
  static bool send_rest_if_free(Peer& peer);

  const int rank_;
  const TimeLimit silence_;
  const std::chrono::milliseconds pause_;  // between two signs of life
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
