// What all groups of a process that use MPI have in common. They fail together: MPI cannot go on without a rank.
#pragma once

#include <mpi.h>

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "lockstep/comm/mesh.h"

namespace lockstep {

class MpiSession {
 public:
  // Starts MPI, unless the program has done so. A collective.
  MpiSession();
  // Ends MPI where it was started here: a process can do so once. After a failure it does not: mpirun then ends all
  // ranks as soon as this process has ended.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  // All ranks, and no messages but the session's own.
  MPI_Comm world() const { return world_; }

  // All calls that move data come through here. False, and nothing is done, after a failure: what is under way then
  // points to memory that may be gone, and MPI moves it in whatever call it gets.
  template <typename Call>
  bool call(const Call& call) {
    std::lock_guard lock(mutex_);
    if (failure_) return false;
    call();
    listen();
    return !failure_;
  }

  // The first one counts, and is told to all ranks.
  void fail(const RankFailure& failure);
  std::optional<RankFailure> failure() const;

 private:
  // Whether another rank has failed.
  void listen();

  mutable std::mutex mutex_;
  std::optional<RankFailure> failure_;
  MPI_Comm world_ = MPI_COMM_NULL;
  bool started_ = false;
};

// Throws what MPI says of its own failure.
void check_mpi(int status, const char* doing);

}  // namespace lockstep
