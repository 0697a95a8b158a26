#include "lockstep/comm/control_channel.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "lockstep/comm/heartbeat.h"
#include "lockstep/net/comm_error.h"
#include "lockstep/net/tcp_socket.h"

namespace lockstep {
namespace {

enum class FrameKind : std::uint32_t { message, failure, shutdown, descriptor, heartbeat, received };

// The longest time that a group waits, when it ends, for a rank that does not read.
constexpr std::chrono::milliseconds kFlushTime{5'000};

// A peer that knows the group's key is trusted, but the lengths that it sends are checked nevertheless.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40;

}  // namespace

struct ControlChannel::Frame {
  FrameKind kind = FrameKind::message;
  std::int32_t number = 0;     // a tag, the culprit of a failure, or a descriptor's index
  std::uint64_t bytes = 0;     // number of bytes of the data, which follow the frame
  std::uint64_t received = 0;  // bytes of messages that a receiver took
  CollectiveHeader header{};
};

// A frame as it is sent: the frame, its tag, its data, and the tag of the data. The frame has a tag of its own, because
// its number of bytes decides how much memory the receiver allocates.
struct ControlChannel::Sealed {
  std::array<std::byte, sizeof(Frame) + MessageMac::kTagBytes> head;
  std::span<const std::byte> data;
  MessageMac::Tag tail;
  std::size_t head_bytes, tail_bytes;

  std::size_t size() const { return head_bytes + data.size() + tail_bytes; }
  // The bytes from `at` to the end of the part (head, data, or tail) that contains it.
  std::span<const std::byte> from(std::size_t at) const {
    if (at < head_bytes) return std::span(head).first(head_bytes).subspan(at);
    at -= head_bytes;
    return at < data.size() ? data.subspan(at) : std::span(tail).first(tail_bytes).subspan(at - data.size());
  }
};

struct ControlChannel::Peer {
  PeerSocket socket;  // `writing` guards its outgoing tags
  std::mutex writing;
  std::vector<std::byte> unsent;  // rest of frames that were sent in part; guarded by `writing`
  // Used by the reading thread alone.
  Frame frame;
  std::vector<std::byte> data;
  MessageMac::Tag tag;
  std::size_t got = 0;  // number of bytes received so far of the frame, its tag, its data, and their tag
  bool is_forged = false;
  FileDescriptor descriptor;
  // Guarded by ControlChannel::mutex_.
  bool departed = false;
  std::uint64_t unreceived = 0;  // bytes of messages that the peer has not received yet
  // Number of heartbeat intervals since the peer's last message. Negative before the first message, because the peer
  // may still be connecting to other ranks.
  int silent_for = -2;
};

PeerSockets ControlChannel::connect(const GroupMembership& group, SocketKind kind, int connections,
                                    const TimeLimit& limit) {
  PeerSockets sockets;
  try {
    connect_peers(group, kind, connections, limit, sockets);
  } catch (const CommError& error) {
    // Opens no descriptor, because the reason may be that this process has none left.
    const std::string reason = error.what();
    const Frame frame{.kind = FrameKind::failure, .number = error.lost_rank(), .bytes = reason.size()};
    for (PeerSocket& socket : sockets.back()) {
      Peer peer;
      peer.socket = std::move(socket);
      keep_rest(peer, seal(peer, frame, reinterpret_cast<const std::byte*>(reason.data())), 0);
      send_rest(peer);
    }
    throw;
  }
  return sockets;
}

ControlChannel::ControlChannel(int rank, std::vector<PeerSocket> sockets, std::chrono::milliseconds silence)
    : rank_(rank), silence_(silence), interval_(heartbeat_interval(silence)),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  check(static_cast<bool>(stop_), "process group: cannot make an event: {}", std::strerror(errno));
  for (PeerSocket& socket : sockets) {
    peers_.push_back(std::make_unique<Peer>());
    peers_.back()->socket = std::move(socket);
  }
  if (peers_.size() > 1) reader_ = std::thread([this] { read_all(); });
}

ControlChannel::~ControlChannel() {
  const std::uint64_t one = 1;
  if (::write(stop_.get(), &one, sizeof one) == sizeof one && reader_.joinable()) reader_.join();
  tell_all({.kind = FrameKind::shutdown}, nullptr);
  if (!first_failure()) flush();
}

void ControlChannel::flush() {
  std::vector<bool> done(peers_.size());
  const TimeLimit limit(std::min(silence_.length(), kFlushTime));
  const auto is_flushed = [](Peer& peer) {
    std::array<std::byte, 4096> heartbeats;
    ssize_t n;
    while ((n = ::recv(peer.socket.get(), heartbeats.data(), heartbeats.size(), MSG_DONTWAIT)) > 0) {
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) return true;  // the peer reads no more
    if (!send_rest(peer)) return errno != EAGAIN && errno != EINTR;
    int protocol = 0, left = 0;
    socklen_t size = sizeof protocol;
    // A Unix socket has no send buffer: what was sent is already in the peer's receive buffer.
    const bool is_tcp =
        ::getsockopt(peer.socket.get(), SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 && protocol == IPPROTO_TCP;
    return !is_tcp || ::ioctl(peer.socket.get(), SIOCOUTQ, &left) != 0 || left == 0;
  };
  for (;;) {
    bool all = true;
    for (std::size_t r = 0; r < peers_.size(); ++r) {
      if (!done[r]) done[r] = !peers_[r]->socket || is_flushed(*peers_[r]);
      all = all && done[r];
    }
    if (all || limit.over()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void ControlChannel::watch(std::function<void(const RankFailure&)> on_failure) {
  std::lock_guard lock(mutex_);
  on_failure_ = std::move(on_failure);
  if (first_failure_ && on_failure_) on_failure_(*first_failure_);
}

std::optional<RankFailure> ControlChannel::first_failure() const {
  std::lock_guard lock(mutex_);
  return first_failure_;
}

bool ControlChannel::departed(int rank) const {
  std::lock_guard lock(mutex_);
  return peers_[static_cast<std::size_t>(rank)]->departed;
}

void ControlChannel::read_all() {
  std::vector<pollfd> items{{stop_.get(), POLLIN, 0}};
  for (const auto& peer : peers_) items.push_back({peer->socket.get(), POLLIN, 0});  // poll() ignores -1
  auto next_heartbeat = std::chrono::steady_clock::now();  // at once, so that other ranks know that this rank is alive
  for (;;) {
    for (std::size_t r = 0; r < peers_.size(); ++r) {
      if (items[r + 1].fd >= 0) items[r + 1].events = send_rest_if_free(*peers_[r]) ? POLLIN : POLLIN | POLLOUT;
    }
    wait_for_any(items, next_heartbeat);
    std::uint64_t stopped;  // the read shows whether the event is really set
    if (items[0].revents != 0 && ::read(stop_.get(), &stopped, sizeof stopped) == sizeof stopped) return;
    for (std::size_t r = 0; r < peers_.size(); ++r) {
      if (items[r + 1].revents == 0 || read_some(static_cast<int>(r))) continue;
      items[r + 1].fd = -1;
      const int rank = static_cast<int>(r);
      if (peers_[r]->is_forged) {
        tell_failure(lost(rank, kForged));  // the peer does not know of that
        report(lost(rank, kForged));
      } else if (!departed(rank)) {
        report(lost(rank, kClosedConnection));
      }
      mailbox_.close(rank);
    }
    // Counts silence last: this process first reads everything that arrived while it was stopped.
    if (std::chrono::steady_clock::now() < next_heartbeat) continue;
    send_heartbeats();
    next_heartbeat = std::chrono::steady_clock::now() + interval_;
  }
}

void ControlChannel::send_heartbeats() {
  int lost_rank = -1;
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
    if (r == rank_) continue;
    try_send_heartbeat(r);
    std::lock_guard lock(mutex_);
    Peer& peer = *peers_[static_cast<std::size_t>(r)];
    if (++peer.silent_for == silence_.length() / interval_ && !peer.departed && lost_rank < 0) lost_rank = r;
  }
  if (lost_rank < 0) return;
  const RankFailure failure = no_answer(lost_rank, silence_);
  tell_failure(failure);
  report(failure);
}

bool ControlChannel::answers(int rank) const {
  std::lock_guard lock(mutex_);
  const int silent_for = peers_[static_cast<std::size_t>(rank)]->silent_for;
  return silent_for >= 0 && silent_for < kRecentHeartbeats;
}

bool ControlChannel::read_some(int rank) {
  Peer& peer = *peers_[static_cast<std::size_t>(rank)];
  MessageMac& mac = peer.socket.incoming;
  const std::size_t head = sizeof(Frame) + mac.tag_bytes();
  // Reads to the end of the current part: the frame, its tag, its data, or the tag of the data.
  iovec piece;
  if (peer.got < sizeof(Frame)) {
    piece = {reinterpret_cast<std::byte*>(&peer.frame) + peer.got, sizeof(Frame) - peer.got};
  } else if (peer.got < head) {
    piece = {peer.tag.data() + (peer.got - sizeof(Frame)), head - peer.got};
  } else if (peer.got < head + peer.data.size()) {
    piece = {peer.data.data() + (peer.got - head), head + peer.data.size() - peer.got};
  } else {
    const std::size_t done = peer.got - head - peer.data.size();
    piece = {peer.tag.data() + done, peer.tag.size() - done};
  }
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = ::recvmsg(peer.socket.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) return false;
  {
    std::lock_guard lock(mutex_);
    peer.silent_for = 0;
  }
  if (const cmsghdr* c = CMSG_FIRSTHDR(&message); c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
    int fd;
    std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
    peer.descriptor = FileDescriptor(fd);
  }
  peer.got += static_cast<std::size_t>(n);
  const auto is_genuine = [&](const void* data, std::size_t bytes) {
    if (mac) mac.update(data, bytes);
    peer.is_forged = mac && !mac.finish_with(peer.tag);
    return !peer.is_forged;
  };
  if (peer.got == head) {
    if (!is_genuine(&peer.frame, sizeof(Frame)) || peer.frame.bytes > kMostBytes) return false;
    try {
      peer.data.resize(peer.frame.bytes);
    } catch (const std::bad_alloc&) {
      return false;
    }
    if (peer.data.empty()) handle_frame(rank);
  } else if (peer.got == head + peer.data.size() + mac.tag_bytes()) {
    if (!is_genuine(peer.data.data(), peer.data.size())) return false;
    handle_frame(rank);
  }
  return true;
}

void ControlChannel::handle_frame(int rank) {
  Peer& peer = *peers_[static_cast<std::size_t>(rank)];
  const Frame frame = peer.frame;
  std::vector<std::byte> data = std::exchange(peer.data, {});
  peer.got = 0;
  switch (frame.kind) {
    case FrameKind::message: mailbox_.put(rank, frame.number, {frame.header, std::move(data)}); break;
    case FrameKind::failure:
      report({frame.number, std::string(reinterpret_cast<const char*>(data.data()), data.size())});
      break;
    case FrameKind::shutdown: {
      std::lock_guard lock(mutex_);
      peer.departed = true;
      break;
    }
    case FrameKind::heartbeat: break;
    case FrameKind::received: {
      std::lock_guard lock(mutex_);
      peer.unreceived -= std::min(peer.unreceived, frame.received);
      break;
    }
    case FrameKind::descriptor: {
      std::lock_guard lock(mutex_);
      descriptors_[{rank, frame.number}] = std::move(peer.descriptor);
      break;
    }
  }
}

void ControlChannel::report(const RankFailure& failure) {
  std::lock_guard lock(mutex_);
  if (!first_failure_) first_failure_ = failure;
  if (on_failure_) on_failure_(failure);
}

void ControlChannel::send(int destination, int tag, const Message& message, const TimeLimit& limit,
                          const std::function<std::optional<RankFailure>()>& failure) {
  Peer& peer = *peers_[static_cast<std::size_t>(destination)];
  const std::uint64_t bytes = message.bytes.size();
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (first_failure_) throw_rank_failure(*first_failure_);
      if (peer.departed) throw_rank_failure(lost(destination, kClosedGroup));
      if (peer.unreceived == 0 || peer.unreceived + bytes <= kMostUnreceived) {
        peer.unreceived += bytes;
        break;
      }
    }
    if (const auto failed = failure ? failure() : std::nullopt) throw_rank_failure(*failed);
    if (mailbox_.closed(destination)) throw_rank_failure(lost(destination, kClosedConnection));
    if (limit.over()) throw_rank_failure(overdue(destination, answers(destination), limit));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const Frame frame{.number = tag, .bytes = bytes, .header = message.header};
  send_frame(destination, frame, message.bytes.data(), -1, limit);
}

std::optional<Message> ControlChannel::receive(int source, int tag, const TimeLimit& limit,
                                               const std::function<bool()>& give_up) {
  std::optional<Message> message = mailbox_.take(source, tag, limit, give_up);
  if (message && !message->bytes.empty()) {
    Peer& peer = *peers_[static_cast<std::size_t>(source)];
    const Frame frame{.kind = FrameKind::received, .received = message->bytes.size()};
    std::lock_guard lock(peer.writing);
    // If the source does not read now, the reading thread sends the rest later.
    keep_rest(peer, seal(peer, frame, nullptr), 0);
    send_rest(peer);
  }
  return message;
}

void ControlChannel::tell_failure(const RankFailure& failure) {
  {
    // Makes a thread throw that waits to send a frame to a rank that does not read.
    std::lock_guard lock(mutex_);
    if (!first_failure_) first_failure_ = failure;
  }
  const Frame frame{.kind = FrameKind::failure, .number = failure.culprit, .bytes = failure.reason.size()};
  tell_all(frame, reinterpret_cast<const std::byte*>(failure.reason.data()));
}

void ControlChannel::tell_all(const Frame& frame, const std::byte* data) {
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
    if (r == rank_) continue;
    Peer& peer = *peers_[static_cast<std::size_t>(r)];
    std::lock_guard lock(peer.writing);
    keep_rest(peer, seal(peer, frame, data), 0);
    send_rest(peer);
  }
}

void ControlChannel::send_frame(int destination, const Frame& frame, const std::byte* data, int descriptor,
                                const TimeLimit& limit) {
  Peer& peer = *peers_[static_cast<std::size_t>(destination)];
  std::lock_guard lock(peer.writing);
  const auto wait_for_room = [&] {
    if (errno != EAGAIN && errno != EINTR) throw_rank_failure(lost(destination, kClosedConnection));
    if (const auto failed = first_failure()) throw_rank_failure(*failed);
    if (limit.over()) throw_rank_failure(overdue(destination, answers(destination), limit));
    pollfd item{peer.socket.get(), POLLOUT, 0};
    wait_for_any({&item, 1}, std::chrono::steady_clock::now() + std::chrono::milliseconds(20));
  };
  while (!send_rest(peer)) wait_for_room();
  const Sealed sealed = seal(peer, frame, data);
  std::size_t sent = 0;
  while (sent < sealed.size()) {
    const std::span<const std::byte> part = sealed.from(sent);
    iovec piece{const_cast<std::byte*>(part.data()), part.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (descriptor >= 0 && sent == 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* c = CMSG_FIRSTHDR(&message);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(c), &descriptor, sizeof descriptor);
    }
    const ssize_t n = ::sendmsg(peer.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      sent += static_cast<std::size_t>(n);
      continue;
    }
    try {
      wait_for_room();
    } catch (...) {
      // Keeps the rest: the receiver would otherwise take the next frame for the rest of this one, and reject its tag.
      if (sent > 0 || peer.socket.outgoing) keep_rest(peer, sealed, sent);
      throw;
    }
  }
}

void ControlChannel::try_send_heartbeat(int destination) {
  Peer& peer = *peers_[static_cast<std::size_t>(destination)];
  // A frame in flight serves as a heartbeat when it arrives.
  std::unique_lock lock(peer.writing, std::try_to_lock);
  if (!lock || !send_rest(peer)) return;
  keep_rest(peer, seal(peer, {.kind = FrameKind::heartbeat}, nullptr), 0);
  send_rest(peer);
}

ControlChannel::Sealed ControlChannel::seal(Peer& peer, const Frame& frame, const std::byte* data) {
  MessageMac& mac = peer.socket.outgoing;
  Sealed sealed{.data = {data, frame.bytes}, .head_bytes = sizeof frame + mac.tag_bytes(), .tail_bytes = 0};
  const auto tag_of = [&](const void* bytes, std::size_t count) {
    mac.update(bytes, count);
    return mac.finish();
  };
  std::memcpy(sealed.head.data(), &frame, sizeof frame);
  if (!mac) return sealed;
  const MessageMac::Tag tag = tag_of(&frame, sizeof frame);
  std::memcpy(sealed.head.data() + sizeof frame, tag.data(), tag.size());
  if (frame.bytes == 0) return sealed;
  sealed.tail = tag_of(data, frame.bytes);
  sealed.tail_bytes = sealed.tail.size();
  return sealed;
}

void ControlChannel::keep_rest(Peer& peer, const Sealed& sealed, std::size_t sent) {
  while (sent < sealed.size()) {
    const std::span<const std::byte> part = sealed.from(sent);
    peer.unsent.insert(peer.unsent.end(), part.begin(), part.end());
    sent += part.size();
  }
}

bool ControlChannel::send_rest(Peer& peer) {
  std::size_t sent = 0;
  while (sent < peer.unsent.size()) {
    const std::size_t left = peer.unsent.size() - sent;
    const ssize_t n = ::send(peer.socket.get(), &peer.unsent[sent], left, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n <= 0) break;
    sent += static_cast<std::size_t>(n);
  }
  const int error = errno;
  peer.unsent.erase(peer.unsent.begin(), peer.unsent.begin() + static_cast<std::ptrdiff_t>(sent));
  errno = error;
  return peer.unsent.empty();
}

bool ControlChannel::send_rest_if_free(Peer& peer) {
  const std::unique_lock lock(peer.writing, std::try_to_lock);
  return !lock || send_rest(peer);
}

void ControlChannel::send_descriptor(int destination, int number, const FileDescriptor& descriptor,
                                     const TimeLimit& limit) {
  send_frame(destination, {.kind = FrameKind::descriptor, .number = number}, nullptr, descriptor.get(), limit);
}

FileDescriptor ControlChannel::receive_descriptor(int source, int number, const TimeLimit& limit,
                                                  const std::function<std::optional<RankFailure>()>& failure) {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (auto found = descriptors_.find({source, number}); found != descriptors_.end()) {
        FileDescriptor descriptor = std::move(found->second);
        descriptors_.erase(found);
        return descriptor;
      }
    }
    // Calls failure() without the lock, because it may wait for something that the reading thread is about to read.
    if (const auto failed = failure()) throw_rank_failure(*failed);
    if (const auto failed = first_failure()) throw_rank_failure(*failed);
    if (limit.over()) throw_rank_failure(overdue(source, answers(source), limit));
    if (departed(source)) throw_rank_failure(lost(source, kClosedGroup));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace lockstep
