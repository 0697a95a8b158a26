// Internal: exchanges blocks over TCP, between ranks on any hosts.
#pragma once

#include <memory>

#include "lockstep/comm/transport.h"
#include "lockstep/net/peer_connector.h"

namespace lockstep {

// A collective.
std::unique_ptr<Transport> make_tcp_transport(GroupMembership group, std::chrono::milliseconds timeout);

}  // namespace lockstep
