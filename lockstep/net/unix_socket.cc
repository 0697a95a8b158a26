#include "lockstep/net/unix_socket.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"

namespace lockstep {

SocketAddress abstract_address(const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  check(name.size() < sizeof address.sun_path, "unix socket: a name of {} bytes, expected fewer than {}", name.size(),
        sizeof address.sun_path);
  name.copy(address.sun_path + 1, name.size());
  return {reinterpret_cast<const sockaddr*>(&address),
          static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

std::optional<uid_t> user_of_peer(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {};
  return peer.uid;
}

bool stands_for_one_user(uid_t user) try {
  if (std::to_string(user) + "\n" != read_file("/proc/sys/kernel/overflowuid", 64)) return true;
  // The initial user namespace maps all users: "0 0 4294967295".
  std::istringstream map(read_file("/proc/self/uid_map", 1 << 16));
  std::uint64_t inside = 0, outside = 0, count = 0;
  return map >> inside >> outside >> count && count == UINT32_MAX;
} catch (const Error&) {
  return true;  // without /proc, trusts the number
}

}  // namespace lockstep
