// Ranks that are processes of one host: memory without a name, passed on over Unix sockets. Nothing outlives them.
#pragma once

#include <memory>

#include "lockstep/comm/peers.h"
#include "lockstep/net/peer_connector.h"

namespace lockstep {

// A collective. A rank is lost when nothing is heard of it for the length of `limit`, then and later.
std::unique_ptr<Peers> make_process_peers(Introduction group, const TimeLimit& limit);

}  // namespace lockstep
