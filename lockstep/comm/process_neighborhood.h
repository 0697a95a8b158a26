// Ranks that are processes of one host: memory without a name, passed on over Unix sockets. Nothing outlives them.
#pragma once

#include <memory>

#include "lockstep/comm/neighborhood.h"
#include "lockstep/comm/peer_connector.h"

namespace lockstep {

// A collective. A rank is lost when nothing is heard of it for the length of `limit`, then and later.
std::unique_ptr<Neighborhood> make_process_neighborhood(Introduction group, const TimeLimit& limit);

}  // namespace lockstep
