// How often ranks send heartbeats.
#pragma once

#include <algorithm>
#include <chrono>

namespace lockstep {

// A rank counts as alive if it was heard from within this many heartbeats.
constexpr int kRecentBeats = 3;

// An eighth of the silence after which a rank is lost, and at most a second, since another rank may have a shorter
// timeout.
constexpr std::chrono::milliseconds pause_of_beats(std::chrono::milliseconds silence) {
  return std::clamp(silence / 8, std::chrono::milliseconds(1), std::chrono::milliseconds(1000));
}

}  // namespace lockstep
