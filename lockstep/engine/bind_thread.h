// Internal: binds a thread to cores.
#pragma once

#include <vector>

namespace lockstep {

// Binds the calling thread to these cores. Returns false if the process may not use all of them; the thread may then be
// bound to some of them.
bool bind_thread(const std::vector<int>& cpus) noexcept;

}  // namespace lockstep
