// Internal: the groups "host", "nccl", and "auto": processes that have found each other and communicate through sockets
// and shared memory.
#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/process_group.h"
#include "lockstep/launch/failure_reports.h"
#include "lockstep/net/peer_connector.h"

namespace lockstep {

enum class TransportChoice {
  automatic,  // shared memory if all ranks are on one host, else TCP
  tcp,
};

// Reads LOCKSTEP_TRANSPORT: "auto" (the default) or "tcp".
TransportChoice transport_from_environment();

// A collective. `name` is ProcessGroup::backend(). `report` is that of TransportGroup.
std::shared_ptr<ProcessGroup> make_socket_group(GroupMembership group, const GroupTimeouts& timeouts,
                                                TransportChoice transport = TransportChoice::automatic,
                                                std::string name = "host", FailureReporter report = {});

}  // namespace lockstep
