// The group "gloo", once it is known who its ranks are.
#pragma once

#include <memory>

#include "lockstep/comm/peer_connector.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {

enum class GlooTransportChoice {
  automatic,  // shared memory where all ranks are on one host, else TCP
  tcp,
};

// LOCKSTEP_TRANSPORT: "auto" (or not set), "tcp".
GlooTransportChoice gloo_transport_from_environment();

// A collective.
std::shared_ptr<ProcessGroup> make_gloo_group(Introduction group, std::chrono::milliseconds timeout,
                                              GlooTransportChoice transport = GlooTransportChoice::automatic);

}  // namespace lockstep
