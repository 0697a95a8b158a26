// Transfers over stream sockets, one for each peer: the thread that waits moves the bytes, in both directions at once.
#pragma once

#include <deque>
#include <span>

#include "lockstep/base/file_descriptor.h"
#include "lockstep/comm/pairwise_transport.h"

namespace lockstep {

class SocketTransfers final : public Transfers {
 public:
  // sockets[r]: connected with rank r, not blocking, and used by one SocketTransfers at a time. They carry messages in
  // the order of their sending, so tags are not needed. Once one of them broke, or was left before all was done, its
  // place in a message is unknown: the sockets are of no further use.
  explicit SocketTransfers(std::span<const FileDescriptor> sockets);

  void receive(int source, int tag, void* data, std::size_t bytes) override;
  void send(int destination, int tag, const void* data, std::size_t bytes) override;
  Outcome wait(const TimeLimit& limit) override;

 private:
  // A message is its length, then its bytes.
  struct Piece {
    std::byte* data;
    std::uint64_t bytes;
    std::uint64_t length = 0;  // of the message: as sent, or as received so far
    std::size_t done = 0;      // of length and bytes
  };
  struct Peer {
    std::deque<Piece> incoming, outgoing;
  };

  // As far as it goes without waiting. False: the connection is broken.
  bool read_some(int socket, std::deque<Piece>& pieces);
  bool write_some(int socket, std::deque<Piece>& pieces);

  std::span<const FileDescriptor> sockets_;
  std::vector<Peer> peers_;
};

}  // namespace lockstep
