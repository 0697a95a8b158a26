#include "lockstep/net/user_secret.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <system_error>

#include "lockstep/net/descriptor_limit.h"
#include "lockstep/net/secret.h"
#include "lockstep/net/tcp_store.h"
#include "lockstep/net/tcp_store_server.h"
#include "lockstep/net/unix_socket.h"

namespace lockstep {
namespace {

// An answer is the verdict, followed by the secret if the verdict is kOwn.
constexpr char kOwn = 'y', kStranger = 'n';
constexpr std::size_t kSecretBytes = 64;

// The name includes the store's address, so that different jobs have different names.
SocketAddress where_to_ask(const std::string& store) { return abstract_address("lockstep-secret-" + store); }

bool is_process_of(uid_t user, int socket) {
  const std::optional<uid_t> peer = user_of_peer(socket);
  return peer == user && stands_for_one_user(user);
}

FileDescriptor listen_for_askers(const std::string& store) try {
  return listen_at(where_to_ask(store));
} catch (const std::system_error& error) {
  throw ListenError(
      fmt::format("store: cannot make the Unix socket on which processes of user {} get the secret of {}: {}; {}",
                  ::geteuid(), store, error.code().message(), kHowToSetSecret),
      error.code().value());
}

}  // namespace

UserSecret::UserSecret(const SocketAddress& store)
    : user_(::geteuid()), secret_(make_secret()), listener_(listen_for_askers(store.str())) {}

bool UserSecret::answer() const {
  const FileDescriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return false;
  const std::string text = is_process_of(user_, socket.get()) ? kOwn + secret_ : std::string(1, kStranger);
  // The send buffer of a new connection always has room for so few bytes.
  (void)!::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return true;
}

std::string ask_for_secret(const std::string& store, Deadline deadline) {
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket && is_out_of_descriptors(errno)) {
    throw OutOfDescriptors(fmt::format("{}: cannot make a socket: {}", store, describe_descriptor_error(errno)));
  }
  check(static_cast<bool>(socket), "{}: cannot make a socket: {}", store, std::generic_category().message(errno));
  const SocketAddress address = where_to_ask(store);
  if (::connect(socket.get(), address.get(), address.size()) != 0) {
    if (errno == ECONNREFUSED) {
      throw StoreRefused(
          fmt::format("store: {} does not accept a client without a secret: it belongs to another job or host, or {}",
                      store, kHowToSetSecret));
    }
    throw ConnectionError(fmt::format("{}: asking for the secret: {}", store,
                                      std::generic_category().message(errno)));  // many processes ask at once
  }
  const std::optional<uid_t> owner = user_of_peer(socket.get());
  if (owner != ::geteuid()) {
    throw StoreRefused(
        fmt::format("store: {} belongs to a process of user {}, this process to user {}: without a "
                    "secret, a job has the processes of one user; choose another port, or {}",
                    store, owner ? std::to_string(*owner) : "unknown", ::geteuid(), kHowToSetSecret));
  }
  std::string answer;
  for (;;) {
    std::array<char, 1 + kSecretBytes> bytes;
    const ssize_t n = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
    if (n > 0) answer.append(bytes.data(), static_cast<std::size_t>(n));
    if (n == 0 || answer.size() > kSecretBytes || (n < 0 && errno != EAGAIN && errno != EINTR)) break;
    if (n > 0) continue;
    if (milliseconds_until(deadline) == 0)
      throw NoAnswer(fmt::format("{}: no answer to the request for the secret", store));
    pollfd item{socket.get(), POLLIN, 0};
    wait_for_any({&item, 1}, deadline);
  }
  if (answer.starts_with(kStranger) || (owner && !stands_for_one_user(*owner))) {
    throw StoreRefused(
        fmt::format("store: {} cannot tell whether this process belongs to its user: in this user "
                    "namespace, several users have the number {}; {}",
                    store, ::geteuid(), kHowToSetSecret));
  }
  if (answer.size() != 1 + kSecretBytes) {
    throw ConnectionError(fmt::format("{}: closed the connection before it sent the secret", store));
  }
  return answer.substr(1);
}

}  // namespace lockstep
