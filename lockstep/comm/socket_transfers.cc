#include "lockstep/comm/socket_transfers.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "lockstep/net/tcp_socket.h"

namespace lockstep {
namespace {

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
// Tags are computed in steps of this many bytes, which are sent while they are in a cache.
constexpr std::size_t kTagStep = std::size_t{1} << 18;

// Result of a call that moved nothing: `done` if a later call may succeed.
Transfers::Result result_of_error() {
  return errno == EAGAIN || errno == EINTR ? Transfers::Result::done : Transfers::Result::broken;
}

}  // namespace

SocketTransfers::SocketTransfers(std::span<PeerSocket> sockets) : sockets_(sockets), peers_(sockets.size()) {}

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
      const int rank = static_cast<int>(r);
      if (items[r].revents != 0) {
        if (const Result sent = write_some(sockets_[r], outgoing); sent != Result::done) return {sent, rank};
        if (const Result got = read_some(sockets_[r], incoming); got != Result::done) return {got, rank};
      }
      items[r].events = static_cast<short>((incoming.empty() ? 0 : POLLIN) | (outgoing.empty() ? 0 : POLLOUT));
      // poll() ignores negative descriptors. A peer that has finished may close its socket.
      items[r].fd = items[r].events == 0 ? -1 : sockets_[r].get();
      // Prefers a rank that does not send to one that does not read, because it is more likely the missing rank.
      if (waits_for < 0 || (!incoming.empty() && peers_[static_cast<std::size_t>(waits_for)].incoming.empty())) {
        if (items[r].events != 0) waits_for = rank;
      }
    }
    if (waits_for < 0) return {};
    if (limit.over()) return {Result::timed_out, waits_for};
    wait_for_any(items, limit.next_look());
  }
}

std::size_t SocketTransfers::parts_of(Piece& piece, std::size_t until, std::array<iovec, 3>& parts) {
  const std::size_t data_end = kLengthBytes + piece.length;
  std::size_t count = 0;
  const auto add = [&](std::byte* section, std::size_t begin, std::size_t end) {
    const std::size_t from = std::max(piece.done, begin), to = std::min(until, end);
    if (from < to) parts[count++] = {section + (from - begin), to - from};
  };
  add(reinterpret_cast<std::byte*>(&piece.length), 0, kLengthBytes);
  add(piece.data, kLengthBytes, data_end);
  add(piece.tag.data(), data_end, data_end + MessageMac::kTagBytes);
  return count;
}

Transfers::Result SocketTransfers::read_some(PeerSocket& from, std::deque<Piece>& pieces) {
  while (!pieces.empty()) {
    Piece& piece = pieces.front();
    const bool in_length = piece.done < kLengthBytes;
    const std::size_t data_end = kLengthBytes + piece.length, end = data_end + from.incoming.tag_bytes();
    if (in_length || piece.done < end) {
      std::array<iovec, 3> parts;
      msghdr message{};
      message.msg_iov = parts.data();
      message.msg_iovlen = parts_of(piece, in_length ? kLengthBytes : end, parts);
      const ssize_t n = ::recvmsg(from.get(), &message, 0);
      if (n == 0) return Result::broken;
      if (n < 0) return result_of_error();
      const std::size_t before = piece.done;
      piece.done += static_cast<std::size_t>(n);
      if (from.incoming && !in_length && before < data_end) {
        from.incoming.update(piece.data + (before - kLengthBytes), std::min(piece.done, data_end) - before);
      }
    }
    if (in_length) {
      if (piece.done < kLengthBytes) continue;
      // The tag that covers the length comes after the data, but the length is checked against the room for the data.
      if (piece.length > piece.bytes) return Result::broken;
      if (from.incoming) from.incoming.update(&piece.length, kLengthBytes);
      continue;
    }
    if (piece.done < end) continue;
    if (from.incoming && !from.incoming.finish_with(piece.tag)) return Result::forged;
    pieces.pop_front();
  }
  return Result::done;
}

void SocketTransfers::prepare(MessageMac& mac, Piece& piece) {
  const std::size_t data_end = kLengthBytes + piece.length;
  if (!mac) {
    piece.ready = data_end;
    return;
  }
  if (piece.ready == 0) {
    mac.update(&piece.length, kLengthBytes);
    piece.ready = kLengthBytes;
  }
  if (const std::size_t step = std::min(kTagStep, data_end - piece.ready); step > 0) {
    mac.update(piece.data + (piece.ready - kLengthBytes), step);
    piece.ready += step;
  }
  if (piece.ready == data_end) {
    piece.tag = mac.finish();
    piece.ready += MessageMac::kTagBytes;
  }
}

Transfers::Result SocketTransfers::write_some(PeerSocket& to, std::deque<Piece>& pieces) {
  while (!pieces.empty()) {
    Piece& piece = pieces.front();
    if (piece.done == piece.ready) prepare(to.outgoing, piece);
    std::array<iovec, 3> parts;
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts_of(piece, piece.ready, parts);
    const ssize_t n = ::sendmsg(to.get(), &message, MSG_NOSIGNAL);
    if (n < 0) return result_of_error();
    piece.done += static_cast<std::size_t>(n);
    if (piece.done == kLengthBytes + piece.length + to.outgoing.tag_bytes()) pieces.pop_front();
  }
  return Result::done;
}

}  // namespace lockstep
