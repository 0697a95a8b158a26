// How long something may take, and until when.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <string>

namespace lockstep {

// How long a group waits for a rank.
struct GroupTimeouts {
  // One of whose process nothing is heard for so long is lost.
  std::chrono::milliseconds silence{60'000};
  // One whose process answers may take so long to come to an operation.
  std::chrono::milliseconds progress{1'800'000};
};

struct TimeLimit {
  explicit TimeLimit(std::chrono::milliseconds allowed)
      // Long enough to be for ever, short enough not to overflow.
      : length(std::min<std::chrono::milliseconds>(allowed, std::chrono::hours(24 * 365))),
        end(std::chrono::steady_clock::now() + length) {}

  bool over() const { return std::chrono::steady_clock::now() >= end; }
  // "2 s", "500 ms"
  std::string str() const {
    return length.count() % 1000 == 0 ? fmt::format("{} s", length.count() / 1000)
                                      : fmt::format("{} ms", length.count());
  }

  std::chrono::milliseconds length;
  std::chrono::steady_clock::time_point end;
};

}  // namespace lockstep
