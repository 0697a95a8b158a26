#include "lockstep/net/tcp_store_server.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <list>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/hmac.h"
#include "lockstep/base/warning.h"
#include "lockstep/net/descriptor_limit.h"
#include "lockstep/net/secret.h"
#include "lockstep/net/store_session.h"
#include "lockstep/net/store_table.h"
#include "lockstep/net/tcp_socket.h"
#include "lockstep/net/user_secret.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

// Limit of clients in the handshake. A new client closes the oldest, but not before the oldest has had the time below.
// A client of this job needs only milliseconds, and retries if closed, so it gets through a flood of connections.
constexpr std::ptrdiff_t kMostHandshakes = 256;
constexpr std::chrono::milliseconds kShortestHandshake{100};
// Number of new clients to accept before the other clients are served.
constexpr int kMostAccepted = 16;
constexpr std::size_t kLongestError = 1024;
constexpr const char* kAllAddresses = "0.0.0.0";

FileDescriptor listen_for_clients(const TcpStoreServerOptions& options) {
  check(options.port >= 0 && options.port <= 65535, "store: port {}, expected from 0 to 65535", options.port);
  std::string failure;
  int code = 0;
  for (const SocketAddress& address : resolve_host(options.host, options.port)) {
    check(address.is_loopback() || !options.secret.empty(),
          "store: without a secret it listens only on loopback, not at {}; {}", address, kHowToSetSecret);
    try {
      return listen_at(address);
    } catch (const std::system_error& error) {
      const bool taken = error.code() == std::errc::address_in_use;
      failure = fmt::format("store: cannot listen at {}: {}{}", address.str(), error.code().message(),
                            taken ? "; choose another port with --master-port or MASTER_PORT" : "");
      code = error.code().value();
      // Does not try later addresses: clients use this order, and would reach the program that has this address.
      if (taken) break;
    }
  }
  throw ListenError(failure, code);
}

}  // namespace

class TcpStoreServer::Impl {
 public:
  explicit Impl(const TcpStoreServerOptions& options)
      : options_(options), listener_(listen_for_clients(options)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (options.secret.empty()) user_secret_.emplace(address());
    check(static_cast<bool>(wake_), "store: cannot make an event: {}", std::generic_category().message(errno));
    thread_ = std::thread([this] { run(); });
  }
  ~Impl() {
    const std::uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof one);
    thread_.join();
  }
  SocketAddress address() const { return local_address(listener_); }
  int accept_error() const { return accept_error_; }

 private:
  const std::string& secret() const { return user_secret_ ? user_secret_->secret() : options_.secret; }

  struct Client {
    FileDescriptor socket;
    StoreSession session;
    Clock::time_point accepted;
    // The deadline of the handshake; later, the deadline of the waiting get.
    Clock::time_point deadline;
    std::optional<std::string> awaited = {};
    bool closed = false;
    bool timed() const { return !session.admitted() || awaited; }
    bool in_handshake() const { return !session.admitted() && !closed; }
  };

  void run() {
    while (!wait_for_events()) {
      for (std::size_t i = 0; Client & client : clients_) {
        if (const short events = polled_[kFirstClient + i++].revents) guarded(client, [&] { handle(client, events); });
      }
      if (polled_[1].revents) accept_clients();
      if (polled_[2].revents) answer_askers();
      const auto now = Clock::now();
      for (Client& client : clients_) {
        if (client.timed() && client.deadline <= now) guarded(client, [&] { expire(client); });
      }
      clients_.remove_if([](const Client& client) { return client.closed; });
    }
  }

  // Returns whether the server should end.
  bool wait_for_events() {
    const auto now = Clock::now();
    auto wake_at = now + std::chrono::hours(1);
    polled_ = {{wake_.get(), POLLIN, 0},
               {listener_.get(), POLLIN, 0},
               {user_secret_ ? user_secret_->fd() : -1, POLLIN, 0}};  // poll() ignores -1
    if (accept_again_ > now) {
      polled_[1].fd = polled_[2].fd = -1;
      wake_at = std::min(wake_at, accept_again_);
    }
    for (const Client& client : clients_) {
      short events = POLLRDHUP;
      if (!client.session.output().empty()) events |= POLLOUT;
      if (client.session.wants_input()) events |= POLLIN;
      polled_.push_back({client.socket.get(), events, 0});
      if (client.timed()) wake_at = std::min(wake_at, client.deadline);
    }
    wait_for_any(polled_, wake_at);
    std::uint64_t woken;  // the read shows whether the event is really set
    return polled_[0].revents != 0 && ::read(wake_.get(), &woken, sizeof woken) == sizeof woken;
  }

  // Closes only the client that breaks the protocol or exceeds the memory limit.
  template <typename Action>
  void guarded(Client& client, Action&& action) {
    try {
      action();
    } catch (const std::exception&) {
      client.closed = true;
    }
  }

  void accept_clients() {
    for (int i = 0; i < kMostAccepted && make_room(); ++i) {
      FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) {
        if (is_out_of_descriptors(errno)) wait_for_descriptors(errno);
        // The error concerns one connection. The next accept() may succeed.
        if (errno == EINTR || errno == ECONNABORTED) continue;
        return;
      }
      set_connection_options(socket);
      try {
        const auto now = Clock::now();
        clients_.push_back({.socket = std::move(socket),
                            .session = StoreSession(secret(), random_bytes(kStoreNonceBytes)),
                            .accepted = now,
                            .deadline = now + options_.handshake_timeout});
      } catch (const std::exception&) {
        return;  // the destructor closes the socket
      }
      Client& client = clients_.back();
      guarded(client, [&] { flush(client); });
    }
  }

  void answer_askers() {
    for (int i = 0; i < kMostAccepted; ++i) {
      if (user_secret_->answer()) continue;
      if (is_out_of_descriptors(errno)) wait_for_descriptors(errno);
      return;
    }
  }

  // Waits, because there is no free descriptor until a client leaves, and polling the listeners would spin.
  void wait_for_descriptors(int error) {
    accept_error_ = error;
    drop_oldest_handshake();
    accept_again_ = Clock::now() + kShortestHandshake;
  }

  Client* oldest_handshake() {
    const auto oldest = std::ranges::find_if(clients_, &Client::in_handshake);
    return oldest == clients_.end() ? nullptr : &*oldest;
  }

  void drop_oldest_handshake() {
    if (Client* oldest = oldest_handshake()) {
      oldest->closed = true;
      oldest->socket.reset();
    }
  }

  // Makes room for another handshake. If there is none, sets the time at which there will be room.
  bool make_room() {
    if (std::ranges::count_if(clients_, &Client::in_handshake) < kMostHandshakes) return true;
    accept_again_ = oldest_handshake()->accepted + kShortestHandshake;
    if (accept_again_ > Clock::now()) return false;
    drop_oldest_handshake();
    return true;
  }

  void handle(Client& client, short events) {
    if (client.closed) return;
    if ((events & POLLIN) && client.session.wants_input()) {
      std::array<char, 1 << 16> bytes;
      const ssize_t n = ::recv(client.socket.get(), bytes.data(), bytes.size(), 0);
      if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) client.closed = true;
      if (n > 0) client.session.receive({bytes.data(), static_cast<std::size_t>(n)});
    } else if (events & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) {
      client.closed = true;
    }
    if (!client.closed) flush(client);
    while (!client.closed) {
      const std::optional<StoreRequest> request = client.session.next_request();
      if (!request) break;
      serve(client, *request);
      flush(client);
    }
  }

  void flush(Client& client) {
    while (!client.session.output().empty()) {
      const std::string_view output = client.session.output();
      const ssize_t n = ::send(client.socket.get(), output.data(), output.size(), MSG_NOSIGNAL);
      if (n >= 0) {
        client.session.sent(static_cast<std::size_t>(n));
      } else if (errno != EINTR) {
        client.closed = errno != EAGAIN;
        return;
      }
    }
    if (client.session.refused()) client.closed = true;
  }

  void serve(Client& client, const StoreRequest& request) {
    StoreReply reply;
    try {
      const std::string* found = table_.find(request.key);
      switch (request.operation) {
        case StoreOperation::set: store(request.key, request.value); break;
        case StoreOperation::add:
          reply.value = std::to_string(table_.add(request.key, request.value));
          tell_waiting(request.key, reply.value);
          break;
        case StoreOperation::contains: reply.status = found ? StoreStatus::ok : StoreStatus::missing; break;
        case StoreOperation::get:
          if (!found) {
            client.awaited = request.key;
            client.deadline = Clock::now() + std::chrono::milliseconds(request.timeout_ms);
            return;
          }
          reply.value = *found;
      }
    } catch (const Error& error) {
      reply = {.status = StoreStatus::failed, .value = std::string(error.what()).substr(0, kLongestError)};
    }
    client.session.reply(reply);
  }

  void store(const std::string& key, const std::string& value) {
    table_.set(key, value);
    tell_waiting(key, value);
  }

  // Only queues the replies, which poll() sends later: serving the clients from here could recurse.
  void tell_waiting(const std::string& key, const std::string& value) {
    for (Client& client : clients_) {
      if (client.closed || client.awaited != key) continue;
      client.awaited.reset();
      guarded(client, [&] { client.session.reply({.status = StoreStatus::ok, .value = value}); });
    }
  }

  void expire(Client& client) {
    if (!client.awaited) {
      client.closed = true;
      return;
    }
    client.awaited.reset();
    client.session.reply({.status = StoreStatus::missing, .value = {}});
    flush(client);
  }

  static constexpr std::size_t kFirstClient = 3;

  const TcpStoreServerOptions options_;
  const FileDescriptor listener_;
  std::optional<UserSecret> user_secret_;  // set if no secret was given
  const FileDescriptor wake_;
  std::atomic<int> accept_error_{0};
  // From here on, only the server's thread uses the members.
  StoreTable table_;
  std::list<Client> clients_;  // oldest first
  std::vector<pollfd> polled_;
  Clock::time_point accept_again_{};
  std::thread thread_;
};

TcpStoreServer::TcpStoreServer(const TcpStoreServerOptions& options) : impl_(std::make_unique<Impl>(options)) {}
TcpStoreServer::~TcpStoreServer() = default;
int TcpStoreServer::port() const { return impl_->address().port(); }
std::string TcpStoreServer::address() const { return impl_->address().str(); }
int TcpStoreServer::accept_error() const { return impl_->accept_error(); }

std::unique_ptr<TcpStoreServer> listen_for_hosts(const std::string& host, int port, const std::string& secret) {
  const auto listen_at = [&](const std::string& address, const char* why) {
    auto server =
        std::make_unique<TcpStoreServer>(TcpStoreServerOptions{.host = address, .port = port, .secret = secret});
    const std::string at = server->address();
    if (at.starts_with("0.0.0.0:") || at.starts_with("[::]:")) {
      warn("listening at all addresses",
           fmt::format(
               "the job's store listens at {}, at every address of this machine, because {} {}: whoever "
               "reaches one of them may try the secret; to choose one, give its numeric address as MASTER_ADDR or "
               "--master-addr",
               at, host, why));
    }
    return server;
  };
  const bool numeric =
      host.find(':') != std::string::npos || host.find_first_not_of("0123456789.") == std::string::npos;
  const bool own_name = !numeric && host != "localhost" && !secret.empty() && is_loopback(host);
  if (own_name) return listen_at(kAllAddresses, "leads to loopback here");
  try {
    return listen_at(host, "means that");
  } catch (const ListenError& error) {
    if (error.code() != EADDRNOTAVAIL) throw;
    return listen_at(kAllAddresses, "is no address of this machine");
  }
}

}  // namespace lockstep
