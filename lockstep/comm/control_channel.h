// One connection with every other rank for rare messages: point-to-point messages, failures, and goodbyes. One thread
// reads all connections, so a rank sees at once that another one died. The thread also sends heartbeats, even while the
// other threads of its rank are busy. A rank therefore counts as lost when its process is stopped or unreachable, but
// not when it is slow.
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
#include "lockstep/net/peer_connector.h"

namespace lockstep {

class ControlChannel {
 public:
  // Connects the group's ranks. The last connection is for a ControlChannel. If this rank gives up, it tells the ranks
  // that it has reached: they may have all their connections already, and would call it lost.
  static PeerSockets connect(const Introduction& group, SocketKind kind, int connections, const TimeLimit& limit);

  // sockets[r] is a non-blocking connection with rank r; this rank's own place is empty. A rank is lost when nothing is
  // heard from it for `silence`.
  ControlChannel(int rank, std::vector<FileDescriptor> sockets, std::chrono::milliseconds silence);
  // Says goodbye.
  ~ControlChannel();

  // Sets the callback for a rank that is silent or left without a goodbye, and for failures that others report. Earlier
  // failures are reported at once. Runs on the reading thread.
  void watch(std::function<void(const RankFailure&)> on_failure);

  // Waits while the destination has received too little of what was sent before. `failure` is polled.
  void send(int destination, int tag, const Message& message, const TimeLimit& limit,
            const std::function<std::optional<RankFailure>()>& failure = {});
  // As Mailbox::take().
  std::optional<Message> receive(int source, int tag, const TimeLimit& limit, const std::function<bool()>& give_up);
  // Whether the source sends no more messages.
  bool closed(int source) const { return mailbox_.closed(source); }
  // Whether the rank said goodbye.
  bool departed(int rank) const;
  // Whether the rank's process was heard from recently.
  bool answers(int rank) const;
  // Sends nothing else from now on. Senders that wait for a rank that does not read fail with this failure.
  void tell_failure(const RankFailure& failure);

  // Unix sockets only. The other process gets its own descriptor of the same file.
  void send_descriptor(int destination, int number, const FileDescriptor& descriptor, const TimeLimit& limit);
  // Throws if the source fails, if `failure`, which is polled, reports one, or if the time is over. Returns an empty
  // descriptor if this process may open no more.
  FileDescriptor receive_descriptor(int source, int number, const TimeLimit& limit,
                                    const std::function<std::optional<RankFailure>()>& failure);

 private:
  struct Frame;
  struct Peer;

  std::optional<RankFailure> first_failure() const;
  // Waits until the destination's system has everything. Closing a connection with unread heartbeats drops what is
  // still to be sent.
  void flush();
  void read_all();
  // Sends a heartbeat to all ranks, and counts how many turns each has been silent. It counts turns instead of reading
  // the clock, so a process that was stopped itself does not blame others.
  void beat();
  // Returns false if the connection is closed.
  bool read_some(int rank);
  void handle_frame(int rank);
  void report(const RankFailure& failure);
  void send_frame(int destination, const Frame& frame, const std::byte* data, int descriptor, const TimeLimit& limit);
  // Sends to each rank what its socket takes without waiting; the rest goes before the next frame.
  void tell_all(const Frame& frame, const std::byte* data);
  // Does nothing if a send is under way.
  void try_send_sign_of_life(int destination);
  // Both are called with the peer's lock held. Keeps a frame and its data from byte `sent` on.
  static void keep_rest(Peer& peer, const Frame& frame, const std::byte* data, std::size_t sent);
  // Sends what was kept, as far as it goes without waiting. Returns false and sets errno if some is left.
  static bool send_rest(Peer& peer);
  // The reading thread's version: leaves the work to a thread that is already sending.
  static bool send_rest_if_free(Peer& peer);

  const int rank_;
  const TimeLimit silence_;
  const std::chrono::milliseconds pause_;  // between two heartbeats
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
