#include "lockstep/net/peer_connector.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <system_error>
#include <thread>

#include "lockstep/base/hmac.h"
#include "lockstep/net/comm_error.h"
#include "lockstep/net/descriptor_limit.h"
#include "lockstep/net/peer_handshake.h"
#include "lockstep/net/rank_failure.h"
#include "lockstep/net/tcp_socket.h"
#include "lockstep/net/unix_socket.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// A connection that has not completed the handshake after this time is closed.
constexpr std::chrono::seconds kHandshakeTimeout{5};
// Limit of connections in the handshake. A new connection closes the oldest one, but not before the oldest has had
// kMinimumTime, which is enough for a rank of this group. The store has the same rule.
constexpr std::size_t kMostPending = 256;
constexpr std::chrono::milliseconds kMinimumTime{100};
// How long to wait for a free descriptor.
constexpr std::chrono::milliseconds kBackOff{100};

SocketAddress parse_address(SocketKind kind, const std::string& text) {
  if (kind == SocketKind::unix_domain) return abstract_address(text);
  const std::size_t space = text.find(' ');
  check(space != std::string::npos, "peer address: \"{}\", expected a host and a port", text);
  return resolve_host(text.substr(0, space), std::stoi(text.substr(space + 1))).at(0);
}

// Every user may open an abstract Unix socket, so check that the process belongs to this user.
bool same_user(int socket, SocketKind kind) { return kind == SocketKind::tcp || user_of_peer(socket) == ::geteuid(); }

void prepare(const FileDescriptor& socket, SocketKind kind) {
  if (kind == SocketKind::tcp) set_connection_options(socket);
}

// Returns false if the time is over or the connection broke.
bool wait_for(int socket, short events, const TimeLimit& limit) {
  for (;;) {
    pollfd item{socket, events, 0};
    wait_for_any({&item, 1}, limit.next_look());
    if (item.revents != 0) return true;
    if (limit.over()) return false;
  }
}

bool send_all(int socket, std::string_view bytes, const TimeLimit& limit) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno != EINTR && (errno != EAGAIN || !wait_for(socket, POLLOUT, limit))) {
      return false;
    }
  }
  return true;
}

// Returns an empty string if the time is over or the connection broke.
std::string receive_all(int socket, std::size_t count, const TimeLimit& limit) {
  std::string bytes(count, '\0');
  for (std::size_t got = 0; got < count;) {
    const ssize_t n = ::recv(socket, bytes.data() + got, count - got, 0);
    if (n > 0) {
      got += static_cast<std::size_t>(n);
    } else if (n == 0 || (errno != EINTR && (errno != EAGAIN || !wait_for(socket, POLLIN, limit)))) {
      return {};
    }
  }
  return bytes;
}

// A connection in the handshake.
struct Pending {
  FileDescriptor socket;
  steady_clock::time_point accepted = steady_clock::now();
  steady_clock::time_point end = accepted + kHandshakeTimeout;
  std::string input;
  std::uint32_t client = 0, connection = 0;
  std::unique_ptr<PeerHandshake> handshake;  // set after the hello
};

class PeerConnector {
 public:
  PeerConnector(const GroupMembership& group, SocketKind kind, int connections, const TimeLimit& limit,
                PeerSockets& sockets)
      : group_(group), kind_(kind), limit_(limit), sockets_(sockets) {
    sockets_.clear();
    for (int k = 0; k < connections; ++k) {
      sockets_.emplace_back();
      sockets_.back().resize(static_cast<std::size_t>(group.size));
    }
  }

  void run() {
    if (group_.size == 1) return;
    publish();
    // Rank 0 accepts connections at once. Every other rank first connects to all lower ranks, so no two ranks wait for
    // each other.
    for (int r = 0; r < group_.rank; ++r) connect_to(r);
    accept_all();
  }

 private:
  static std::string key_of(int rank) { return fmt::format("address of rank {}", rank); }

  void publish() {
    std::string text = "lockstep-" + hexadecimal(random_bytes(16));
    const bool is_unix = kind_ == SocketKind::unix_domain;
    try {
      listener_ = listen_at(is_unix ? abstract_address(text) : resolve_host(group_.address, 0).at(0));
    } catch (const std::system_error& error) {
      if (!is_out_of_descriptors(error.code().value())) throw;
      throw_rank_failure(out_of_descriptors(error.code().value()));
    }
    if (!is_unix) text = fmt::format("{} {}", group_.address, local_address(listener_).port());
    group_.store->set(key_of(group_.rank), text);
  }

  void connect_to(int peer) {
    const SocketAddress address = parse_address(kind_, read_record(group_, peer, key_of(peer), limit_));
    for (std::size_t k = 0; k < sockets_.size(); ++k) {
      PeerSocket& socket = sockets_[k][static_cast<std::size_t>(peer)];
      while (!(socket = try_connect(address, peer, static_cast<std::uint32_t>(k)))) {
        if (over()) throw_rank_failure(reason_of(lost(peer, "not connected within " + limit_.str())));
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    }
  }

  // A process that cannot open more sockets reports that early, before the ranks that wait for it report it as lost.
  bool over() const { return limit_.left() <= early(); }
  std::chrono::milliseconds early() const { return socket_error_ == 0 ? 0ms : limit_.length() / 4; }
  RankFailure reason_of(const RankFailure& failure) const {
    return socket_error_ == 0 ? failure : out_of_descriptors(socket_error_);
  }
  RankFailure out_of_descriptors(int error) const {
    return {group_.rank, fmt::format("rank {} gave up: {} for connections with {} ranks", group_.rank,
                                     describe_descriptor_error(error), group_.size)};
  }

  PeerSocket try_connect(const SocketAddress& address, int peer, std::uint32_t connection) {
    FileDescriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket && is_out_of_descriptors(errno)) {
      socket_error_ = errno;
      return {};
    }
    socket_error_ = 0;
    check(static_cast<bool>(socket), "process group: cannot make a socket: {}", std::strerror(errno));
    prepare(socket, kind_);
    const int fd = socket.get();
    if (::connect(fd, address.get(), address.size()) != 0) {
      int error = 0;
      socklen_t size = sizeof error;
      if (errno != EINPROGRESS || !wait_for(fd, POLLOUT, limit_)) return {};
      if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) return {};
    }
    if (!same_user(fd, kind_)) return {};
    PeerHandshake handshake(group_.key, static_cast<std::uint32_t>(group_.rank), static_cast<std::uint32_t>(peer),
                            connection);
    if (!send_all(fd, handshake.hello(), limit_)) return {};
    const std::string answer = receive_all(fd, PeerHandshake::kAnswerBytes, limit_);
    if (answer.empty() || !handshake.check_answer(answer)) return {};
    if (!send_all(fd, handshake.proof(), limit_)) return {};
    if (receive_all(fd, PeerHandshake::kWelcomeBytes, limit_).empty()) return {};
    return with_tags(std::move(socket), handshake.key_of_client(), handshake.key_of_server());
  }

  PeerSocket with_tags(FileDescriptor socket, const std::string& own_key, const std::string& other_key) const {
    if (kind_ == SocketKind::unix_domain) return {std::move(socket), {}, {}};
    return {std::move(socket), MessageMac(own_key), MessageMac(other_key)};
  }

  void accept_all() {
    std::list<Pending> pending;
    auto accept_again = steady_clock::now();
    for (;;) {
      const int missing = missing_peer();
      if (missing < 0) return;
      if (over()) throw_rank_failure(reason_of(lost(missing, "did not join within " + limit_.str())));
      auto end = std::min(limit_.next_look(), steady_clock::now() + (limit_.left() - early()));
      if (pending.size() >= kMostPending) {
        accept_again = std::max(accept_again, pending.front().accepted + kMinimumTime);
      }
      const bool backs_off = steady_clock::now() < accept_again;
      if (backs_off) end = std::min(end, accept_again);
      std::vector<pollfd> items{{backs_off ? -1 : listener_.get(), POLLIN, 0}};
      for (const Pending& p : pending) {
        items.push_back({p.socket.get(), POLLIN, 0});
        end = std::min(end, p.end);
      }
      wait_for_any(items, end);
      std::size_t i = 1;
      for (auto p = pending.begin(); p != pending.end(); ++i) {
        const bool keep = items[i].revents == 0 ? steady_clock::now() < p->end : advance(*p);
        p = keep ? std::next(p) : pending.erase(p);
      }
      if (items[0].revents == 0) continue;
      FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      socket_error_ = !socket && is_out_of_descriptors(errno) ? errno : 0;
      if (socket_error_ != 0) {
        accept_again = steady_clock::now() + kBackOff;
      }
      if (!socket || !same_user(socket.get(), kind_)) continue;
      prepare(socket, kind_);
      if (pending.size() == kMostPending) pending.pop_front();
      pending.emplace_back();
      pending.back().socket = std::move(socket);
    }
  }

  int missing_peer() const {
    for (int r = group_.rank + 1; r < group_.size; ++r) {
      for (const auto& sockets : sockets_) {
        if (!sockets[static_cast<std::size_t>(r)]) return r;
      }
    }
    return -1;
  }

  // Reads the handshake's next message and answers it. Returns false if the caller should erase `p`: the connection is
  // of no use, or has moved to sockets_.
  bool advance(Pending& p) {
    const std::size_t expected = p.handshake ? PeerHandshake::kProofBytes : PeerHandshake::kHelloBytes;
    char bytes[64];
    const ssize_t n = ::recv(p.socket.get(), bytes, expected - p.input.size(), 0);
    if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
    p.input.append(bytes, static_cast<std::size_t>(n));
    if (p.input.size() < expected) return true;
    const std::string input = std::exchange(p.input, {});
    if (!p.handshake) {
      if (!PeerHandshake::parse_hello(input, p.client, p.connection)) return false;
      if (p.client >= static_cast<std::uint32_t>(group_.size) || p.connection >= sockets_.size()) return false;
      p.handshake =
          std::make_unique<PeerHandshake>(group_.key, p.client, static_cast<std::uint32_t>(group_.rank), p.connection);
      // The send buffer of a new connection always has room for so few bytes.
      return send_all(p.socket.get(), p.handshake->answer(input), TimeLimit(0ms));
    }
    if (!p.handshake->check_proof(input)) return false;
    // A peer that does not get this byte connects again.
    if (send_all(p.socket.get(), "!", TimeLimit(0ms))) {
      sockets_[p.connection][p.client] =
          with_tags(std::move(p.socket), p.handshake->key_of_server(), p.handshake->key_of_client());
    }
    return false;
  }

  const GroupMembership& group_;
  SocketKind kind_;
  const TimeLimit& limit_;
  FileDescriptor listener_;
  int socket_error_ = 0;  // why this process cannot open another socket
  PeerSockets& sockets_;
};

}  // namespace

GroupMembership subgroup_of(const GroupMembership& whole, const std::vector<int>& ranks, const std::string& name) {
  GroupMembership part = whole;
  part.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), whole.rank) - ranks.begin());
  part.size = static_cast<int>(ranks.size());
  part.store = make_prefix_store(fmt::format("{} of {}/", name, fmt::join(ranks, ",")), whole.store);
  part.key = hmac_sha256(whole.key, name);
  return part;
}

std::string read_record(const GroupMembership& group, int rank, const std::string& key, const TimeLimit& limit) {
  for (;;) {
    const auto next_look = limit.next_look();
    try {
      return group.store->get(key, std::chrono::milliseconds(milliseconds_until(next_look)));
    } catch (const CommError&) {
      throw;  // rank 0, which hosts the store, is lost
    } catch (const ConnectionError&) {
      throw;  // the store is gone, or did not answer in time
    } catch (const Error&) {
      if (limit.over()) throw_rank_failure(lost(rank, "did not join within " + limit.str()));
      if (steady_clock::now() < next_look) throw;
    }
  }
}

void connect_peers(const GroupMembership& group, SocketKind kind, int connections, const TimeLimit& limit,
                   PeerSockets& sockets) {
  PeerConnector(group, kind, connections, limit, sockets).run();
}

}  // namespace lockstep
