#include "lockstep/net/tcp_store.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/environment.h"
#include "lockstep/base/hmac.h"
#include "lockstep/net/secret.h"
#include "lockstep/net/store_protocol.h"
#include "lockstep/net/tcp_socket.h"
#include "lockstep/net/user_secret.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kReceiveBytes = 1 << 14;

// Makes bytes from an unknown server printable for an error.
std::string printable(std::string_view bytes) {
  std::string text(bytes.substr(0, kStoreMagic.size()));
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c > '~'; }, '.');
  return text;
}

// Throws NoAnswer if the last attempt ended in silence.
[[noreturn]] void throw_lost(const std::string& what, bool silent) {
  if (silent) throw NoAnswer(what);
  throw ConnectionError(what);
}

bool is_silence(const ConnectionError& error) { return dynamic_cast<const NoAnswer*>(&error) != nullptr; }

// A connection after the handshake.
struct Line {
  TcpConnection connection;
  MessageMac requests, replies;
};

// Both sides prove that they know the secret. Throws ConnectionError if a retry may help.
Line shake_hands(TcpConnection connection, const std::string& given_secret, Deadline deadline) {
  std::string greeting = connection.receive(kStoreGreetingBytes, deadline);
  // An unknown server may send less than a greeting and then stay silent.
  while (greeting.size() < kStoreGreetingBytes && kStoreMagic.starts_with(greeting.substr(0, kStoreMagic.size()))) {
    greeting += connection.receive(kStoreGreetingBytes - greeting.size(), deadline);
  }
  if (!greeting.starts_with(kStoreMagic)) {
    throw StoreRefused(fmt::format("store: {} sent \"{}\", expected \"{}\": something else listens there",
                                   connection.peer(), printable(greeting), kStoreMagic));
  }
  // Asks after the greeting, because a store that greets is ready to answer.
  const std::string secret = given_secret.empty() ? ask_for_secret(connection.peer(), deadline) : given_secret;
  const std::string server_nonce = greeting.substr(kStoreMagic.size()), nonce = random_bytes(kStoreNonceBytes);
  connection.send(nonce + store_client_hmac(secret, server_nonce, nonce), deadline);
  const std::string answer = connection.receive_exactly(kStoreAnswerBytes, deadline);
  if (answer[0] != kStoreAccepts) {
    throw StoreRefused(fmt::format("store: {} does not accept this process's secret: it belongs to another job, or {}",
                                   connection.peer(), kHowToSetSecret));
  }
  if (!equal_in_constant_time(answer.substr(1), store_server_hmac(secret, server_nonce, nonce))) {
    throw StoreRefused(fmt::format("store: {} does not know the job's secret", connection.peer()));
  }
  return {std::move(connection), store_request_tags(secret, server_nonce, nonce),
          store_reply_tags(secret, server_nonce, nonce)};
}

}  // namespace

class TcpStore::Impl {
 public:
  explicit Impl(const TcpStoreOptions& options) : options_(options) {
    check(options.port >= 1 && options.port <= 65535, "store: port {}, expected from 1 to 65535", options.port);
    Line first = connect(Clock::now() + options.connect_timeout);
    local_host_ = first.connection.local_address().host();
    idle_.push_back(std::move(first));
  }

  const std::string& local_host() const { return local_host_; }

  // Each call uses a connection of its own until it returns.
  StoreReply call(const StoreRequest& request, milliseconds wait = milliseconds(0)) {
    const std::string bytes = encode(request);
    const Deadline deadline = Clock::now() + wait + options_.timeout;
    try {
      std::optional<Line> line = take_idle();
      if (!line) line = connect(Clock::now() + options_.timeout);
      line->connection.send(with_tag(bytes, line->requests), deadline);
      std::string input;
      std::optional<StoreReply> reply;
      while (!(reply = take_reply(input, line->replies))) input += line->connection.receive(kReceiveBytes, deadline);
      check(input.empty(), "store: {} bytes after a reply", input.size());
      const std::lock_guard lock(mutex_);
      idle_.push_back(std::move(*line));
      return std::move(*reply);
    } catch (const ConnectionError& error) {
      // The remaining connections lead to the same server, so they are closed too.
      const std::lock_guard lock(mutex_);
      idle_.clear();
      throw_lost(fmt::format("store: \"{}\": lost the store at {}:{} ({})", request.key, options_.host, options_.port,
                             error.what()),
                 is_silence(error));
    }
  }

 private:
  std::optional<Line> take_idle() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return {};
    Line line = std::move(idle_.back());
    idle_.pop_back();
    return line;
  }

  // Tries all addresses of the host until the time runs out.
  Line connect(Deadline deadline) const {
    for (milliseconds pause{10};; pause = std::min(2 * pause, milliseconds(500))) {
      std::string failure;
      bool silent = false, lacks_descriptors = false;  // without descriptors, the store is not lost
      try {
        for (const SocketAddress& address : resolve_host(options_.host, options_.port)) {
          check(address.is_loopback() || !options_.secret.empty(),
                "store: {} is not loopback and there is no secret; {}", address, kHowToSetSecret);
          try {
            // Limits each attempt, because one that hangs must not use up the whole time.
            const Deadline soon = std::min(deadline, Clock::now() + std::chrono::seconds(5));
            return shake_hands(TcpConnection(address, soon), options_.secret, soon);
          } catch (const ConnectionError& error) {
            failure = error.what();
            silent = is_silence(error);
          }
        }
      } catch (const ConnectionError& error) {
        failure = error.what();
      } catch (const OutOfDescriptors& error) {
        failure = error.what();
        lacks_descriptors = true;
      }
      if (Clock::now() + pause >= deadline) {
        const std::string what = fmt::format("store: cannot reach {}:{} ({})", options_.host, options_.port, failure);
        if (lacks_descriptors) fail("{}", what);
        throw_lost(what, silent);
      }
      std::this_thread::sleep_for(pause);
    }
  }

  const TcpStoreOptions options_;
  std::string local_host_;
  std::mutex mutex_;
  std::vector<Line> idle_;
};

namespace {

// The value of a failed reply is the reason.
StoreReply checked(StoreReply reply) {
  check(reply.status != StoreStatus::failed, "{}", reply.value);
  return reply;
}

}  // namespace

TcpStore::TcpStore(const TcpStoreOptions& options) : impl_(std::make_unique<Impl>(options)) {}
TcpStore::~TcpStore() = default;

std::string TcpStore::local_host() const { return impl_->local_host(); }

void TcpStore::set(const std::string& key, std::string_view value) {
  checked(impl_->call({.operation = StoreOperation::set, .key = key, .value = std::string(value)}));
}

std::string TcpStore::get(const std::string& key, milliseconds timeout) {
  constexpr milliseconds kLongest = std::chrono::hours(24 * 30);
  timeout = std::clamp(timeout, milliseconds(0), kLongest);
  StoreReply reply = checked(impl_->call(
      {.operation = StoreOperation::get, .timeout_ms = static_cast<std::uint32_t>(timeout.count()), .key = key},
      timeout));
  check(reply.status == StoreStatus::ok, "store: no process set \"{}\" within {} s", key,
        static_cast<double>(timeout.count()) / 1000);
  return std::move(reply.value);
}

std::int64_t TcpStore::add(const std::string& key, std::int64_t amount) {
  const StoreReply reply =
      checked(impl_->call({.operation = StoreOperation::add, .key = key, .value = std::to_string(amount)}));
  return parse_integer("the store's sum", reply.value, INT64_MIN, INT64_MAX);
}

bool TcpStore::contains(const std::string& key) {
  return checked(impl_->call({.operation = StoreOperation::contains, .key = key})).status == StoreStatus::ok;
}

}  // namespace lockstep
