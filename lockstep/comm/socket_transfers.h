// Internal: transfers over stream sockets, one for each peer. The waiting thread moves the bytes, in both directions at
// once.
#pragma once

#include <sys/uio.h>

#include <array>
#include <deque>
#include <span>

#include "lockstep/comm/pairwise_transport.h"
#include "lockstep/net/peer_connector.h"

namespace lockstep {

class SocketTransfers final : public Transfers {
 public:
  // sockets[r] is a connection with rank r, used by one SocketTransfers at a time. Messages arrive in the order of
  // sending, so the argument `tag` is not sent. If a socket breaks, or the transfers end early, the position in the
  // stream is unknown and the sockets are unusable.
  explicit SocketTransfers(std::span<PeerSocket> sockets);

  void receive(int source, int tag, void* data, std::size_t bytes) override;
  void send(int destination, int tag, const void* data, std::size_t bytes) override;
  Outcome wait(const TimeLimit& limit) override;

 private:
  // A message as it is sent: its length, its bytes, and the tag of both, if the connection has tags.
  struct Piece {
    std::byte* data;
    std::uint64_t bytes;       // the most bytes to receive
    std::uint64_t length = 0;  // length of the message, as sent or as received so far
    MessageMac::Tag tag{};
    std::size_t done = 0;   // number of bytes of all three that were moved
    std::size_t ready = 0;  // number of bytes that may be sent
  };
  struct Peer {
    std::deque<Piece> incoming, outgoing;
  };

  // Fills `parts` with the places of a piece's bytes from `done` to `until`. Returns the number of parts.
  static std::size_t parts_of(Piece& piece, std::size_t until, std::array<iovec, 3>& parts);
  // Makes the next bytes ready, so that a message is sent while its tag is still being computed.
  static void prepare(MessageMac& mac, Piece& piece);
  // These two move what they can without waiting.
  static Result read_some(PeerSocket& from, std::deque<Piece>& pieces);
  static Result write_some(PeerSocket& to, std::deque<Piece>& pieces);

  std::span<PeerSocket> sockets_;
  std::vector<Peer> peers_;
};

}  // namespace lockstep
