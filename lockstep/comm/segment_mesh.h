// Ranks of one host, threads or processes, exchange blocks through shared memory.
#pragma once

#include <memory>

#include "lockstep/comm/mesh.h"
#include "lockstep/comm/neighborhood.h"

namespace lockstep {

// A collective.
std::unique_ptr<Mesh> make_segment_mesh(std::unique_ptr<Neighborhood> neighborhood,
                                        std::chrono::milliseconds timeout);

}  // namespace lockstep
