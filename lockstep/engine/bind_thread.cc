#include "lockstep/engine/bind_thread.h"

#include <pthread.h>
#include <sched.h>

#include <array>

namespace lockstep {

bool bind_thread(const std::vector<int>& cpus) noexcept {
  // One cpu_set_t has room for 1,024 CPUs.
  std::array<cpu_set_t, 8> wanted{}, got{};
  for (const int cpu : cpus) {
    if (cpu < 0 || cpu >= CPU_SETSIZE * static_cast<int>(wanted.size())) return false;
    CPU_SET_S(static_cast<std::size_t>(cpu), sizeof wanted, wanted.data());
  }
  // The system silently drops forbidden CPUs as long as any allowed one is left, so check the result.
  return pthread_setaffinity_np(pthread_self(), sizeof wanted, wanted.data()) == 0 &&
         pthread_getaffinity_np(pthread_self(), sizeof got, got.data()) == 0 &&
         CPU_EQUAL_S(sizeof got, wanted.data(), got.data());
}

}  // namespace lockstep
