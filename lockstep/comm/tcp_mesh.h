// Ranks on any hosts exchange blocks over TCP.
#pragma once

#include <memory>

#include "lockstep/comm/mesh.h"
#include "lockstep/comm/peer_connector.h"

namespace lockstep {

// A collective.
std::unique_ptr<Mesh> make_tcp_mesh(Introduction group, std::chrono::milliseconds timeout);

}  // namespace lockstep
