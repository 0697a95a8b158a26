// A process group and a store that behave like the ones they wrap until the fault occurs.
#pragma once

#include <memory>

#include "lockstep/comm/process_group.h"
#include "lockstep/net/store.h"
#include "tests/failure/fault.h"

namespace lockstep::testing {

// Each call reaches "rendezvous".
std::shared_ptr<Store> make_faulty_store(std::shared_ptr<Store> store, FaultInjector& fault);

// Reaches "broadcast" before each broadcast of a parameter, "reduce" before each sum of the second bucket, and
// "checkpoint" before ranks agree that one was written.
std::shared_ptr<ProcessGroup> make_faulty_group(std::shared_ptr<ProcessGroup> group, FaultInjector& fault);

}  // namespace lockstep::testing
