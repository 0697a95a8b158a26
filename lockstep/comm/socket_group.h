// Processes that talk by sockets and shared memory, once it is known who they are: the groups "gloo", "nccl" and "auto".
#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/process_group.h"
#include "lockstep/launch/failure_reports.h"
#include "lockstep/net/peer_connector.h"

namespace lockstep {

enum class TransportChoice {
  automatic,  // shared memory where all ranks are on one host, else TCP
  tcp,
};

// LOCKSTEP_TRANSPORT: "auto" (or not set), "tcp".
TransportChoice transport_from_environment();

// A collective. `name`: ProcessGroup::backend(). `report`: as TransportGroup's.
std::shared_ptr<ProcessGroup> make_socket_group(Introduction group, const GroupTimeouts& timeouts,
                                                TransportChoice transport = TransportChoice::automatic,
                                                std::string name = "gloo", FailureReporter report = {});

}  // namespace lockstep
