// How often ranks show each other that they are alive.
#pragma once

#include <algorithm>
#include <chrono>

namespace lockstep {

// A rank that was heard of within so many beats counts as alive.
constexpr int kRecentBeats = 3;

// The pause between two beats is an eighth of the silence after which a rank is lost, and at most a second: another
// rank may have a shorter time.
constexpr std::chrono::milliseconds pause_of_beats(std::chrono::milliseconds silence) {
  return std::clamp(silence / 8, std::chrono::milliseconds(1), std::chrono::milliseconds(1000));
}

}  // namespace lockstep
