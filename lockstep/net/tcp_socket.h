// Internal: TCP with deadlines. Calls with a deadline end by it, and errors name the peer. While a call waits for a
// peer, the time during which this process is suspended does not count, because the peer may be suspended with it.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"

namespace lockstep {

using Deadline = std::chrono::steady_clock::time_point;

// An error that another attempt may avoid: nobody listens yet, the connection broke, or the time ran out.
class ConnectionError : public Error {
 public:
  using Error::Error;
};

// The peer was silent for the whole time. It may be slow, stopped, or unreachable.
class NoAnswer : public ConnectionError {
 public:
  using ConnectionError::ConnectionError;
};

// This process cannot open another socket now.
class OutOfDescriptors : public Error {
 public:
  using Error::Error;
};

// A numeric address and a port.
class SocketAddress {
 public:
  SocketAddress(const sockaddr* address, socklen_t size);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return size_; }
  int family() const { return storage_.ss_family; }
  bool is_loopback() const;
  // "127.0.0.1", "::1"
  std::string host() const;
  int port() const;
  // "127.0.0.1:29500", "[::1]:29500"
  std::string str() const;

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

// Resolves a name or a numeric address, best address first, without duplicates. Throws ConnectionError for an unknown
// name, because a new machine's name may take a while to appear.
std::vector<SocketAddress> resolve_host(const std::string& host, int port);

// Whether all addresses of `host` are loopback.
bool is_loopback(const std::string& host);

// Returns a bound, listening, non-blocking socket. Throws std::system_error, so that callers can tell a port in use
// from other errors.
FileDescriptor listen_at(const SocketAddress& address);

SocketAddress local_address(const FileDescriptor& socket);

// Sets TCP_NODELAY, so that small messages are sent at once, and keep-alive probes, so that a vanished host is noticed
// within a minute.
void set_connection_options(const FileDescriptor& socket);

// Waits until an item is ready or the deadline has passed. poll() fails for more items than this process may have open,
// and that limit may drop after they were opened. In that case, all open items count as ready after a short pause. Use
// non-blocking calls on the items, because an item that counts as ready may not be.
void wait_for_any(std::span<pollfd> items, Deadline deadline);

// This machine's numeric address on the route to a host; empty if there is no route.
std::string host_towards(const std::string& host);

// The first IPv4 address of this machine that is not loopback, numeric; empty if there is none.
std::string outward_host();

class TcpConnection {
 public:
  TcpConnection(const SocketAddress& address, Deadline deadline);

  void send(std::string_view bytes, Deadline deadline);
  // Returns between one and `most` bytes.
  std::string receive(std::size_t most, Deadline deadline);
  std::string receive_exactly(std::size_t count, Deadline deadline);

  // The peer's address, which errors name.
  const std::string& peer() const { return peer_; }
  SocketAddress local_address() const { return lockstep::local_address(socket_); }

 private:
  void wait_for(short events, Deadline deadline, const char* doing);

  FileDescriptor socket_;
  std::string peer_;
};

// The timeout for poll(): milliseconds until the deadline, rounded up, at least 0.
int milliseconds_until(Deadline deadline);

}  // namespace lockstep
