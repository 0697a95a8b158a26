// TCP with deadlines: every call ends by its own, with an error that names the other side.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file_descriptor.h"

namespace lockstep {

using Deadline = std::chrono::steady_clock::time_point;

// An error that may pass with another try: no process listens yet, the line was cut, the time is over.
class ConnectionError : public Error {
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

// The addresses of a name or number, best first, without repetitions. ConnectionError where the name is not known
// (yet: it may take a while until a new machine has its name).
std::vector<SocketAddress> resolve_host(const std::string& host, int port);

// Whether all its addresses are of this machine alone.
bool is_loopback(const std::string& host);

// Bound and listening, not blocking. Throws std::system_error, so that a port in use can be told from the rest.
FileDescriptor listen_at(const SocketAddress& address);

SocketAddress local_address(const FileDescriptor& socket);

// The first of this machine's addresses that is not loopback, numeric; empty if there is none.
std::string outward_host();

class TcpConnection {
 public:
  TcpConnection(const SocketAddress& address, Deadline deadline);

  void send(std::string_view bytes, Deadline deadline);
  // At least one byte and at most `most`.
  std::string receive(std::size_t most, Deadline deadline);
  std::string receive_exactly(std::size_t count, Deadline deadline);

  // How errors call the other side: its address.
  const std::string& peer() const { return peer_; }
  SocketAddress local_address() const { return lockstep::local_address(socket_); }

 private:
  void wait_for(short events, Deadline deadline, const char* doing);

  FileDescriptor socket_;
  std::string peer_;
};

// The argument for poll(): milliseconds until then, rounded up, none below 0.
int milliseconds_until(Deadline deadline);

}  // namespace lockstep
