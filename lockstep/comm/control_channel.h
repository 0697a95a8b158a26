// Internal: one connection with every other rank for rare messages: point-to-point messages, failures, and shutdown
// messages. One thread reads all connections, so a rank sees at once that another rank died. The thread also sends
// heartbeats, even while the other threads of its rank are busy. A rank therefore counts as lost when its process is
// stopped or unreachable, but not when it is slow.
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
  // Connects the group's ranks. The last connection is for a ControlChannel. If this rank gives up, it sends the reason
  // to the ranks that it has reached: they may have all their connections, and would report this rank as lost.
  static PeerSockets connect(const GroupMembership& group, SocketKind kind, int connections, const TimeLimit& limit);

  // sockets[r] is a connection with rank r; this rank's own entry is empty. A rank is lost when no message from it
  // arrives for `silence`.
  ControlChannel(int rank, std::vector<PeerSocket> sockets, std::chrono::milliseconds silence);
  // Sends a shutdown message to all ranks.
  ~ControlChannel();

  // Sets the callback for failures: a rank is silent, a rank left without a shutdown message, or another rank reports a
  // failure. The callback runs on the reading thread, or at once for a failure that happened before.
  void watch(std::function<void(const RankFailure&)> on_failure);

  // Sends a message. Waits while it would leave more than kMostUnreceived bytes unreceived, and polls `failure`.
  void send(int destination, int tag, const Message& message, const TimeLimit& limit,
            const std::function<std::optional<RankFailure>()>& failure = {});
  // The same as Mailbox::take().
  std::optional<Message> receive(int source, int tag, const TimeLimit& limit, const std::function<bool()>& give_up);
  // The same as in Mailbox.
  bool closed(int source) const { return mailbox_.closed(source); }
  bool ended(int source) const { return mailbox_.ended(source); }
  // Whether the rank sent its shutdown message.
  bool departed(int rank) const;
  // Whether a message of the rank's process, such as a heartbeat, arrived recently.
  bool answers(int rank) const;
  // Sends the failure to all ranks; send() fails afterwards. A thread that waits to send to a rank that does not read
  // throws this failure.
  void tell_failure(const RankFailure& failure);

  // Sends a descriptor, over Unix sockets only. The other process gets its own descriptor of the same file.
  void send_descriptor(int destination, int number, const FileDescriptor& descriptor, const TimeLimit& limit);
  // Throws if the source fails, if `failure`, which is polled, reports a failure, or if the time is over. Returns an
  // empty descriptor if this process cannot open another one.
  FileDescriptor receive_descriptor(int source, int number, const TimeLimit& limit,
                                    const std::function<std::optional<RankFailure>()>& failure);

 private:
  struct Frame;
  struct Sealed;
  struct Peer;

  std::optional<RankFailure> first_failure() const;
  // Waits until every destination's kernel has everything that was sent. Otherwise, closing a connection with unread
  // heartbeats would drop the unsent data.
  void flush();
  void read_all();
  // Sends a heartbeat to all ranks, and counts for how many intervals each rank has been silent. It counts intervals
  // instead of reading the clock, so that a process that was stopped does not report other ranks as lost.
  void send_heartbeats();
  // Returns false if the connection is closed or its bytes are not those of the peer.
  bool read_some(int rank);
  void handle_frame(int rank);
  void report(const RankFailure& failure);
  void send_frame(int destination, const Frame& frame, const std::byte* data, int descriptor, const TimeLimit& limit);
  // Sends to each rank what its socket takes without waiting. Keeps the rest, which goes out before the next frame.
  void tell_all(const Frame& frame, const std::byte* data);
  // Does nothing if another thread is sending to that rank, or if kept bytes remain.
  void try_send_heartbeat(int destination);
  // Call these three with the peer's lock held. Frames must go out in the order in which they are sealed.
  static Sealed seal(Peer& peer, const Frame& frame, const std::byte* data);
  // Keeps the bytes of a sealed frame from byte `sent` on.
  static void keep_rest(Peer& peer, const Sealed& sealed, std::size_t sent);
  // Sends as many kept bytes as it can without waiting. Returns false and sets errno if some are left.
  static bool send_rest(Peer& peer);
  // Does the same for the reading thread. If another thread is sending, leaves the work to it and returns true.
  static bool send_rest_if_free(Peer& peer);

  const int rank_;
  const TimeLimit silence_;
  const std::chrono::milliseconds interval_;  // between two heartbeats
  std::vector<std::unique_ptr<Peer>> peers_;
  FileDescriptor stop_;
  Mailbox mailbox_;
  mutable std::mutex mutex_;
  std::function<void(const RankFailure&)> on_failure_;
  std::optional<RankFailure> first_failure_;
  std::map<std::pair<int, int>, FileDescriptor> descriptors_;  // by source and index
  std::thread reader_;
};

}  // namespace lockstep
