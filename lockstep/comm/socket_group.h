// Processes that talk by sockets and shared memory, once it is known who they are: the group "gloo".
#pragma once

#include <memory>

#include "lockstep/comm/peer_connector.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {

enum class TransportChoice {
  automatic,  // shared memory where all ranks are on one host, else TCP
  tcp,
};

// LOCKSTEP_TRANSPORT: "auto" (or not set), "tcp".
TransportChoice transport_from_environment();

// A collective.
std::shared_ptr<ProcessGroup> make_socket_group(Introduction group, std::chrono::milliseconds timeout,
                                                TransportChoice transport = TransportChoice::automatic);

}  // namespace lockstep
