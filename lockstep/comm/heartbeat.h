// Internal: how often ranks send heartbeats.
#pragma once

#include <algorithm>
#include <chrono>

namespace lockstep {

// A rank counts as alive if a message from it arrived within this many heartbeat intervals.
constexpr int kRecentHeartbeats = 3;

// The time between two heartbeats: an eighth of the silence after which a rank is lost, but at most a second, because
// another rank may have a shorter timeout.
constexpr std::chrono::milliseconds heartbeat_interval(std::chrono::milliseconds silence) {
  return std::clamp(silence / 8, std::chrono::milliseconds(1), std::chrono::milliseconds(1000));
}

}  // namespace lockstep
