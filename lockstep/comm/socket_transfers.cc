#include "lockstep/comm/socket_transfers.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>

#include "lockstep/net/tcp_socket.h"

namespace lockstep {
namespace {

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);

}  // namespace

SocketTransfers::SocketTransfers(std::span<const FileDescriptor> sockets) : sockets_(sockets), peers_(sockets.size()) {}

void SocketTransfers::receive(int source, int /*tag*/, void* data, std::size_t bytes) {
  peers_[static_cast<std::size_t>(source)].incoming.push_back({static_cast<std::byte*>(data), bytes});
}

void SocketTransfers::send(int destination, int /*tag*/, const void* data, std::size_t bytes) {
  auto* begin = static_cast<std::byte*>(const_cast<void*>(data));
  peers_[static_cast<std::size_t>(destination)].outgoing.push_back({begin, bytes, bytes});
}

Transfers::Outcome SocketTransfers::wait(const TimeLimit& limit) {
  std::vector<pollfd> items(peers_.size());
  for (std::size_t r = 0; r < peers_.size(); ++r) items[r] = {sockets_[r].get(), 0, POLLIN | POLLOUT};
  for (;;) {
    int waits_for = -1;
    for (std::size_t r = 0; r < peers_.size(); ++r) {
      auto& [incoming, outgoing] = peers_[r];
      const int rank = static_cast<int>(r), socket = sockets_[r].get();
      if (items[r].revents != 0 && !outgoing.empty() && !write_some(socket, outgoing)) return {Result::broken, rank};
      if (items[r].revents != 0 && !incoming.empty() && !read_some(socket, incoming)) return {Result::broken, rank};
      items[r].events = static_cast<short>((incoming.empty() ? 0 : POLLIN) | (outgoing.empty() ? 0 : POLLOUT));
      // poll() ignores negative descriptors. A peer that is done may close its socket.
      items[r].fd = items[r].events == 0 ? -1 : socket;
      // Names a rank that does not send before one that does not read: the former is more likely the missing one.
      if (waits_for < 0 || (!incoming.empty() && peers_[static_cast<std::size_t>(waits_for)].incoming.empty())) {
        if (items[r].events != 0) waits_for = rank;
      }
    }
    if (waits_for < 0) return {};
    if (limit.over()) return {Result::timed_out, waits_for};
    wait_for_any(items, limit.next_look());
  }
}

bool SocketTransfers::read_some(int socket, std::deque<Piece>& pieces) {
  while (!pieces.empty()) {
    Piece& piece = pieces.front();
    const bool in_length = piece.done < kLengthBytes;
    auto* begin =
        in_length ? reinterpret_cast<std::byte*>(&piece.length) + piece.done : piece.data + (piece.done - kLengthBytes);
    const std::size_t end = kLengthBytes + (in_length ? 0 : piece.length);
    if (piece.done < end) {
      const ssize_t n = ::recv(socket, begin, end - piece.done, 0);
      if (n == 0) return false;
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      piece.done += static_cast<std::size_t>(n);
    }
    if (piece.done < kLengthBytes) continue;
    if (piece.length > piece.bytes) return false;
    if (piece.done == kLengthBytes + piece.length) pieces.pop_front();
  }
  return true;
}

bool SocketTransfers::write_some(int socket, std::deque<Piece>& pieces) {
  while (!pieces.empty()) {
    Piece& piece = pieces.front();
    iovec parts[2];
    std::size_t count = 0;
    if (piece.done < kLengthBytes) {
      parts[count++] = {reinterpret_cast<std::byte*>(&piece.length) + piece.done, kLengthBytes - piece.done};
    }
    const std::size_t sent = piece.done < kLengthBytes ? 0 : piece.done - kLengthBytes;
    if (sent < piece.bytes) parts[count++] = {piece.data + sent, piece.bytes - sent};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    const ssize_t n = ::sendmsg(socket, &message, MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    piece.done += static_cast<std::size_t>(n);
    if (piece.done == kLengthBytes + piece.bytes) pieces.pop_front();
  }
  return true;
}

}  // namespace lockstep
