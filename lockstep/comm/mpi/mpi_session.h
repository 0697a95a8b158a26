// Shared by all groups of a process that use MPI. They fail together: MPI cannot go on without a rank. A thread
// sends signs of life to all other ranks, whatever this one's other threads do, and counts those that come from them.
#pragma once

#include <mpi.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "lockstep/comm/transport.h"

namespace lockstep {

class MpiSession {
 public:
  // Starts MPI, unless the program has done so. A collective. `silence`: a rank is lost when nothing is heard of it
  // for so long.
  explicit MpiSession(std::chrono::milliseconds silence);
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
  // Whether something was heard of that rank of the world lately.
  bool answers(int rank) const;
  // The rank has closed its last group.
  bool departed(int rank) const;
  // Any has. Costs nothing.
  bool any_departed() const { return any_departed_.load(std::memory_order_relaxed); }

 private:
  struct Peer {
    MPI_Request sending = MPI_REQUEST_NULL;
    int sent = 0, received = 0;
    int silent_for = -2;  // beats since it was last heard of; below 0: not at all yet
    bool departed = false;
  };

  // All of these with the mutex held.
  // Takes what the session's own messages say: who is alive, who leaves, that another rank has failed.
  void listen();
  void send_sign(int rank, int tag);
  void beat();
  // One more turn in which nothing was heard of it. False where that was one too many.
  bool count_silence(int rank);
  void set_failure(const RankFailure& failure);

  void beat_until(const std::stop_token& stop);
  // So that nothing is under way when MPI ends. Waits for all ranks, as MPI does, but for none that stands still.
  void say_goodbye();

  mutable std::mutex mutex_;
  std::optional<RankFailure> failure_;
  std::atomic<bool> any_departed_{false};
  MPI_Comm world_ = MPI_COMM_NULL;
  bool started_ = false;
  int rank_ = 0;
  const TimeLimit silence_;
  std::vector<Peer> peers_;  // of each rank
  std::jthread beats_;
};

// Throws what MPI says of its own failure.
void check_mpi(int status, const char* doing);

}  // namespace lockstep
