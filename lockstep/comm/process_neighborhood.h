// Ranks that are processes of one host: memory without a name, passed on over Unix sockets. Nothing outlives them.
#pragma once

#include <memory>

#include "lockstep/comm/neighborhood.h"
#include "lockstep/comm/peer_connector.h"

namespace lockstep {

// A collective. A rank of which nothing is heard for the length of `limit` is lost, then and later.
std::unique_ptr<Neighborhood> make_process_neighborhood(Introduction group, const TimeLimit& limit);

}  // namespace lockstep
