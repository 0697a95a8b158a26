// Internal: ranks that are processes of one host. They pass anonymous memory over Unix sockets, so nothing outlives
// them.
#pragma once

#include <memory>

#include "lockstep/comm/peers.h"
#include "lockstep/net/peer_connector.h"

namespace lockstep {

// A collective. A rank is lost when nothing is heard from it for the length of `limit`, during this call and later.
std::unique_ptr<Peers> make_process_peers(GroupMembership group, const TimeLimit& limit);

}  // namespace lockstep
