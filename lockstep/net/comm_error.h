// The error that a failure of communication between ranks throws.
#pragma once

#include <string>

#include "lockstep/base/error.h"

namespace LOCKSTEP_API lockstep {

// Thrown for every failure of communication. Names the lost rank, if one is known, and the operation that waited for
// it: `rank 1 lost (connection closed) during all-reduce of bucket 3, step 17`.
class CommError : public Error {
 public:
  CommError(const std::string& message, int lost_rank) : Error(message), lost_rank_(lost_rank) {}
  // -1 if unknown.
  int lost_rank() const { return lost_rank_; }

 private:
  int lost_rank_;
};

}  // namespace lockstep
