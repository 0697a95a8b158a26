// Internal: binds a thread to cores.
#pragma once

#include <vector>

namespace lockstep {

// Binds the calling thread to these cores. Returns false, and may have bound it to some of them, if the process may not
// use all of them.
bool bind_thread(const std::vector<int>& cpus) noexcept;

}  // namespace lockstep
