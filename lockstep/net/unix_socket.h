// Internal: Unix sockets with abstract names, and the user of the process at the other end.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "lockstep/net/tcp_socket.h"

namespace lockstep {

// Abstract names are visible in the whole network namespace. They vanish with their socket, even after a crash.
SocketAddress abstract_address(const std::string& name);

// The user of the process that connected to or listens at the other end; empty if the system does not say.
std::optional<uid_t> user_of_peer(int socket);

// Whether the number stands for one user. In a user namespace, all users outside of it share one number, which may also
// belong to a user inside.
bool stands_for_one_user(uid_t user);

}  // namespace lockstep
