#include "lockstep/net/tcp_socket.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>

#include "lockstep/net/descriptor_limit.h"
#include "lockstep/net/time_limit.h"

namespace lockstep {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

bool interrupted_or_early(int error) { return error == EINTR || error == EAGAIN || error == EWOULDBLOCK; }

void set_option(const FileDescriptor& socket, int level, int option, int value) {
  // Ignores failures, because every option that is set here is an optimization.
  (void)::setsockopt(socket.get(), level, option, &value, sizeof value);
}

}  // namespace

SocketAddress::SocketAddress(const sockaddr* address, socklen_t size) : size_(size) {
  check(size <= sizeof storage_, "socket address: {} bytes, expected at most {}", size, sizeof storage_);
  std::memcpy(&storage_, address, size);
}

bool SocketAddress::is_loopback() const {
  if (family() == AF_INET) {
    return ntohl(reinterpret_cast<const sockaddr_in&>(storage_).sin_addr.s_addr) >> 24 == 127;
  }
  return family() == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(storage_).sin6_addr);
}

std::string SocketAddress::host() const {
  char text[NI_MAXHOST];
  const int error = ::getnameinfo(get(), size_, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? text : "unknown";
}

int SocketAddress::port() const {
  return ntohs(family() == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(storage_).sin6_port
                                    : reinterpret_cast<const sockaddr_in&>(storage_).sin_port);
}

std::string SocketAddress::str() const {
  return family() == AF_INET6 ? fmt::format("[{}]:{}", host(), port()) : fmt::format("{}:{}", host(), port());
}

std::vector<SocketAddress> resolve_host(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  errno = 0;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0 && is_out_of_descriptors(errno)) {
    throw OutOfDescriptors(fmt::format("host \"{}\": {}", host, describe_descriptor_error(errno)));
  }
  if (error != 0) {
    throw ConnectionError(
        fmt::format("host \"{}\": {}", host, error == EAI_SYSTEM ? reason(errno) : ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    const SocketAddress address(a->ai_addr, a->ai_addrlen);
    const bool known = std::any_of(addresses.begin(), addresses.end(),
                                   [&](const SocketAddress& other) { return other.str() == address.str(); });
    if (!known) addresses.push_back(address);
  }
  return addresses;
}

bool is_loopback(const std::string& host) {
  const std::vector<SocketAddress> addresses = resolve_host(host, 0);
  return std::all_of(addresses.begin(), addresses.end(), [](const SocketAddress& a) { return a.is_loopback(); });
}

FileDescriptor listen_at(const SocketAddress& address) {
  const auto fail_system = [&] { throw std::system_error(errno, std::generic_category(), address.str()); };
  FileDescriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) fail_system();
  // Lets a job reuse the port of a job that ended a moment ago.
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(socket.get(), address.get(), address.size()) != 0) fail_system();
  if (::listen(socket.get(), SOMAXCONN) != 0) fail_system();
  return socket;
}

SocketAddress local_address(const FileDescriptor& socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  const int failed = ::getsockname(socket.get(), address, &size);
  check(failed == 0, "socket: cannot read its address: {}", reason(errno));
  return {address, size};
}

std::string host_towards(const std::string& host) {
  constexpr int kAnyPort = 9;
  for (const SocketAddress& address : resolve_host(host, kAnyPort)) {
    // Connecting a UDP socket sends nothing. The kernel only chooses the route.
    const FileDescriptor socket(::socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (socket && ::connect(socket.get(), address.get(), address.size()) == 0) return local_address(socket).host();
  }
  return {};
}

std::string outward_host() {
  ifaddrs* found = nullptr;
  const int failed = ::getifaddrs(&found);
  check(failed == 0, "socket: cannot read this machine's addresses: {}", reason(errno));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(found, &::freeifaddrs);
  // Skips IPv6: a link-local address is useless without the name of its link.
  for (const ifaddrs* i = found; i != nullptr; i = i->ifa_next) {
    const bool up = (i->ifa_flags & IFF_UP) && !(i->ifa_flags & IFF_LOOPBACK);
    if (up && i->ifa_addr && i->ifa_addr->sa_family == AF_INET) {
      return SocketAddress(i->ifa_addr, sizeof(sockaddr_in)).host();
    }
  }
  return {};
}

void set_connection_options(const FileDescriptor& socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  // By default, the first keep-alive probe would be sent after two hours.
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

void wait_for_any(std::span<pollfd> items, Deadline deadline) {
  if (::poll(items.data(), items.size(), milliseconds_until(deadline)) >= 0) return;
  const bool interrupted = errno == EINTR;
  if (!interrupted) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  for (pollfd& item : items) {
    item.revents = interrupted || item.fd < 0 ? short{0} : static_cast<short>(item.events & (POLLIN | POLLOUT));
  }
}

TcpConnection::TcpConnection(const SocketAddress& address, Deadline deadline)
    : socket_(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)), peer_(address.str()) {
  if (!socket_ && is_out_of_descriptors(errno)) {
    throw OutOfDescriptors(fmt::format("{}: cannot make a socket: {}", peer_, describe_descriptor_error(errno)));
  }
  check(static_cast<bool>(socket_), "{}: cannot make a socket: {}", peer_, reason(errno));
  set_connection_options(socket_);
  int error = ::connect(socket_.get(), address.get(), address.size()) == 0 ? 0 : errno;
  if (error == EINPROGRESS || error == EINTR) {
    wait_for(POLLOUT, deadline, "connecting");
    socklen_t size = sizeof error;
    const int failed = ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    check(failed == 0, "{}: {}", peer_, reason(errno));
  }
  if (error != 0) throw ConnectionError(fmt::format("{}: {}", peer_, reason(error)));
  // If nobody listens at that port, the kernel may give this socket the very port that it connects to.
  if (local_address().str() == peer_) throw ConnectionError(fmt::format("{}: connected to itself", peer_));
}

void TcpConnection::wait_for(short events, Deadline deadline, const char* doing) {
  const TimeLimit limit(std::chrono::milliseconds(milliseconds_until(deadline)));
  for (;;) {
    pollfd item{socket_.get(), events, 0};
    const int ready = ::poll(&item, 1, milliseconds_until(limit.next_look()));
    if (ready > 0) return;
    check(ready == 0 || errno == EINTR, "{}: cannot wait: {}", peer_, reason(errno));
    if (limit.over()) throw NoAnswer(fmt::format("{}: no answer in time while {}", peer_, doing));
  }
}

void TcpConnection::send(std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (interrupted_or_early(errno)) {
      wait_for(POLLOUT, deadline, "sending");
    } else {
      throw ConnectionError(fmt::format("{}: {}", peer_, reason(errno)));
    }
  }
}

std::string TcpConnection::receive(std::size_t most, Deadline deadline) {
  std::string bytes(most, '\0');
  for (;;) {
    const ssize_t n = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (n > 0) {
      bytes.resize(static_cast<std::size_t>(n));
      return bytes;
    }
    if (n == 0) throw ConnectionError(fmt::format("{}: the connection was closed", peer_));
    if (!interrupted_or_early(errno)) throw ConnectionError(fmt::format("{}: {}", peer_, reason(errno)));
    wait_for(POLLIN, deadline, "receiving");
  }
}

std::string TcpConnection::receive_exactly(std::size_t count, Deadline deadline) {
  std::string bytes;
  while (bytes.size() < count) bytes += receive(count - bytes.size(), deadline);
  return bytes;
}

int milliseconds_until(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, INT_MAX));
}

}  // namespace lockstep
