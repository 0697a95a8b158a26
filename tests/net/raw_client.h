// A socket through which a test sends any bytes, including those that no client would send.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "lockstep/base/file_descriptor.h"

namespace lockstep {

class RawClient {
 public:
  // Connects to loopback.
  explicit RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      throw std::runtime_error("cannot connect");
    }
  }

  // Whether the other side still accepts it.
  bool send(std::string_view bytes) {
    return ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }

  // Up to `count` bytes; fewer if the other side closes or stays silent for 20 s.
  std::string receive(std::size_t count) {
    std::string bytes;
    while (bytes.size() < count && readable(20'000)) {
      char buffer[4096];
      const ssize_t n = ::recv(socket_.get(), buffer, std::min(sizeof buffer, count - bytes.size()), 0);
      if (n <= 0) break;
      bytes.append(buffer, static_cast<std::size_t>(n));
    }
    return bytes;
  }

  // Whether the other side closes within 20 s, whatever it sends before that.
  bool is_closed() {
    while (readable(20'000)) {
      char buffer[4096];
      if (::recv(socket_.get(), buffer, sizeof buffer, 0) <= 0) return true;
    }
    return false;
  }

  // Leaves with a reset instead of a normal close.
  void reset() {
    const linger none{1, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &none, sizeof none);
    socket_.reset();
  }

  bool readable(int milliseconds) const {
    pollfd item{socket_.get(), POLLIN, 0};
    return ::poll(&item, 1, milliseconds) > 0;
  }

  int fd() const { return socket_.get(); }

 private:
  FileDescriptor socket_;
};

}  // namespace lockstep
