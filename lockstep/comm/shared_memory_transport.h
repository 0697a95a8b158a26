// Ranks of one host, threads or processes, exchange blocks through shared memory.
#pragma once

#include <memory>

#include "lockstep/comm/peers.h"
#include "lockstep/comm/transport.h"

namespace lockstep {

// A collective.
std::unique_ptr<Transport> make_shared_memory_transport(std::unique_ptr<Peers> peers,
                                        std::chrono::milliseconds timeout);

}  // namespace lockstep
