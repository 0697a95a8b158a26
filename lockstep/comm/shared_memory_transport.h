// Internal: exchanges blocks through shared memory, between ranks of one host that are threads or processes.
#pragma once

#include <memory>

#include "lockstep/comm/peers.h"
#include "lockstep/comm/transport.h"

namespace lockstep {

// A collective.
std::unique_ptr<Transport> make_shared_memory_transport(std::unique_ptr<Peers> peers,
                                                        std::chrono::milliseconds timeout);

}  // namespace lockstep
