// Waits for what another thread or process does.
#pragma once

#include <chrono>
#include <thread>

namespace lockstep {

// Whether the condition comes true within the limit, which is long: sanitizers and busy machines are slow.
template <typename Condition>
bool wait_until(const Condition& condition, std::chrono::seconds limit = std::chrono::seconds(50)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace lockstep
