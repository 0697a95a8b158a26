// Internal: time limits that do not count the time during which the process is suspended.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "lockstep/base/export.h"

namespace lockstep {

// Times that a group waits for a rank.
struct GroupTimeouts {
  // A rank is lost when nothing is heard from its process for this long.
  std::chrono::milliseconds silence{60'000};
  // Time that a rank may take to reach an operation while its process answers.
  std::chrono::milliseconds progress{1'800'000};
};

// A limit counts the time during which this process runs. Ctrl-Z, a batch system, or a closed lid suspends all ranks of
// a job together, and that time should not count. A process does not notice that it was stopped, so a waiting thread
// checks its limit at least once per kRound, and a longer gap between two checks counts as kMostPerRound. A limit
// belongs to one thread.
class TimeLimit {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kRound{500}, kMostPerRound{1'000};

  explicit TimeLimit(std::chrono::milliseconds allowed)
      // At most a year, so that the end of the limit does not overflow.
      : length_(std::min<std::chrono::milliseconds>(allowed, std::chrono::hours(24 * 365))),
        end_(last_look_ + length_) {}

  bool over() const { return left() <= Clock::duration::zero(); }
  Clock::duration left() const {
    const Clock::time_point now = Clock::now();
    end_ += std::max<Clock::duration>(now - last_look_ - kMostPerRound, Clock::duration::zero());
    last_look_ = now;
    return end_ - now;
  }
  // Time by which a waiting thread checks its limit again.
  Clock::time_point next_look() const {
    const Clock::duration left = this->left();
    return last_look_ + std::clamp<Clock::duration>(left, Clock::duration::zero(), kRound);
  }

  void extend(Clock::duration by) { end_ += by; }
  std::chrono::milliseconds length() const { return length_; }
  // "2 s", "500 ms"
  std::string str() const {
    return length_.count() % 1000 == 0 ? fmt::format("{} s", length_.count() / 1000)
                                       : fmt::format("{} ms", length_.count());
  }

 private:
  std::chrono::milliseconds length_;
  mutable Clock::time_point last_look_ = Clock::now();
  mutable Clock::time_point end_;
};

}  // namespace lockstep
