// How often ranks show each other that they are alive.
#pragma once

#include <algorithm>
#include <chrono>

namespace lockstep {

// A rank that was heard of within so many beats counts as alive.
constexpr int kRecentBeats = 3;

// The pause between two beats, where a rank is lost after so much silence: an eighth, but not so long that another rank,
// which was given a shorter time, misses it.
constexpr std::chrono::milliseconds pause_of_beats(std::chrono::milliseconds silence) {
  return std::clamp(silence / 8, std::chrono::milliseconds(1), std::chrono::milliseconds(1000));
}

}  // namespace lockstep
