// Internal: Unix sockets with abstract names, and whose process is at their other end.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "lockstep/net/tcp_socket.h"

namespace lockstep {

// An abstract name is known to all users of the network namespace. It disappears with its socket, even after a crash.
SocketAddress abstract_address(const std::string& name);

// The user of the process at the other end, as the system says: of the one that connected, or that listens. Empty if
// the system does not say.
std::optional<uid_t> user_of_peer(int socket);

// Whether that number stands for one user. In a user namespace, all users outside of it share a number, which may also
// be a user's inside.
bool stands_for_one_user(uid_t user);

}  // namespace lockstep
