// Internal: ranks that are processes of one host. They pass anonymous memory over Unix sockets, so that nothing
// outlives the processes.
#pragma once

#include <memory>

#include "lockstep/comm/peers.h"
#include "lockstep/net/peer_connector.h"

namespace lockstep {

// A collective. A rank is lost when no message from it arrives for the length of `limit`, during this call and later.
std::unique_ptr<Peers> make_process_peers(GroupMembership group, const TimeLimit& limit);

}  // namespace lockstep
