// Internal: computation in host memory: the calling thread runs the CPU back end's kernels, with the bits of a CPU
// device that computes a shard with one thread. Any number of threads may do so at once.
#pragma once

#include <exception>
#include <string_view>

#include "lockstep/backend/backend.h"
#include "lockstep/device/device.h"
#include "lockstep/runtime/device_state.h"

namespace lockstep {

// Made at first use, and never destroyed: tensors of the host may be global objects.
Backend& host_backend();
// Returns this thread's context.
KernelContext& host_context();

// The back end that computes on `device`; kHost: host_backend().
inline Backend& backend_of(Device device, std::string_view what) {
  return device.is_host() ? host_backend() : *state_of(device, what).backend;
}

// Throws the exception of a kernel that ran in host memory, as a wait for a device's task would: "relu on host: ...".
[[noreturn]] void fail_on_host(std::string_view name, std::exception_ptr cause);

}  // namespace lockstep
