// Internal: transfers over stream sockets, one for each peer. The waiting thread moves the bytes, in both directions at
// once.
#pragma once

#include <deque>
#include <span>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/comm/pairwise_transport.h"

namespace lockstep {

class SocketTransfers final : public Transfers {
 public:
  // sockets[r] is a non-blocking connection with rank r, used by one SocketTransfers at a time. Messages arrive in the
  // order of sending, so tags are unnecessary. If a socket breaks, or the transfers end early, the position in the
  // stream is unknown and the sockets are unusable.
  explicit SocketTransfers(std::span<const FileDescriptor> sockets);

  void receive(int source, int tag, void* data, std::size_t bytes) override;
  void send(int destination, int tag, const void* data, std::size_t bytes) override;
  Outcome wait(const TimeLimit& limit) override;

 private:
  // A message is its length, followed by its bytes.
  struct Piece {
    std::byte* data;
    std::uint64_t bytes;
    std::uint64_t length = 0;  // of the message, as sent or as received so far
    std::size_t done = 0;      // bytes of length and message together
  };
  struct Peer {
    std::deque<Piece> incoming, outgoing;
  };

  // Moves what it can without waiting. Returns false if the connection is broken.
  bool read_some(int socket, std::deque<Piece>& pieces);
  bool write_some(int socket, std::deque<Piece>& pieces);

  std::span<const FileDescriptor> sockets_;
  std::vector<Peer> peers_;
};

}  // namespace lockstep
