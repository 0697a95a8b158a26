// Internal: the reasons why ranks stop working together.
#pragma once

#include <fmt/core.h>

#include <string>

#include "lockstep/net/comm_error.h"
#include "lockstep/net/time_limit.h"

namespace lockstep {

// Why a group can no longer be used.
struct RankFailure {
  int culprit = -1;  // -1: no single rank
  std::string reason;
};

[[noreturn]] inline void throw_rank_failure(const RankFailure& failure) {
  throw CommError(failure.reason, failure.culprit);
}

inline RankFailure lost(int rank, const std::string& why) {
  return {rank, fmt::format("rank {} lost ({})", rank, why)};
}
inline RankFailure no_answer(int rank, const TimeLimit& limit) { return lost(rank, "no answer within " + limit.str()); }
// Describes a limit that has expired. `answers`: whether the rank's process is known to be alive.
inline RankFailure overdue(int rank, bool answers, const TimeLimit& limit) {
  if (!answers) return no_answer(rank, limit);
  return {rank, fmt::format("rank {} hangs (alive, but did not join within {})", rank, limit.str())};
}
inline constexpr const char* kClosedConnection = "connection closed";
inline constexpr const char* kClosedGroup = "it closed its group";
inline constexpr const char* kForged = "a message on its connection has a wrong tag: changed on the way, or forged";

}  // namespace lockstep
