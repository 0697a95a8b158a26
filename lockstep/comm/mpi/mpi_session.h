// State that all MPI groups of a process share. The groups fail together, because MPI cannot continue after it loses a
// rank. A thread of the session sends heartbeats to all other ranks, even while this rank's other threads are busy, and
// counts the intervals in which none arrive.
#pragma once

#include <mpi.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "lockstep/comm/transport.h"

namespace lockstep {

class MpiSession {
 public:
  // A collective. Starts MPI unless the program has done so. A rank is lost when no message from it arrives for
  // `silence`.
  explicit MpiSession(std::chrono::milliseconds silence);
  // Calls MPI_Finalize if this object started MPI, which ends MPI for this process. Skips that after a failure: mpirun
  // then kills all ranks when this process exits.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  // Communicator of all ranks. It carries only the session's own messages.
  MPI_Comm world() const { return world_; }

  // All calls that move data go through here. After a failure, call() returns false and does nothing: operations in
  // flight may refer to memory that was freed, and any MPI call might continue them.
  template <typename Call>
  bool call(const Call& call) {
    std::lock_guard lock(mutex_);
    if (failure_) return false;
    call();
    listen();
    return !failure_;
  }

  // Notes a failure and tells all ranks. Only the first failure counts.
  void fail(const RankFailure& failure);
  std::optional<RankFailure> failure() const;
  // Whether a message from that rank of the world arrived recently.
  bool answers(int rank) const;
  // Whether the rank has closed its last group.
  bool departed(int rank) const;
  // Whether any rank has departed. Takes no lock.
  bool any_departed() const { return any_departed_.load(std::memory_order_relaxed); }

 private:
  struct Peer {
    MPI_Request sending = MPI_REQUEST_NULL;
    int sent = 0, received = 0;
    int silent_for = -2;  // heartbeat intervals since its last message; negative before the first message
    bool departed = false;
  };

  // Call the next five with the mutex held.
  // Reads the session's own messages: heartbeats, shutdown messages, and failures.
  void listen();
  // Sends an empty message with that tag.
  void send_empty(int rank, int tag);
  void send_heartbeats();
  // Counts one more silent interval. Returns false if there were too many.
  bool count_silence(int rank);
  void set_failure(const RankFailure& failure);

  void send_heartbeats_until(const std::stop_token& stop);
  // Exchanges shutdown messages, so that no message is in flight at MPI_Finalize. Waits for all ranks, as MPI does. If
  // a rank hangs, sets the failure and returns.
  void shut_down();

  mutable std::mutex mutex_;
  std::optional<RankFailure> failure_;
  std::atomic<bool> any_departed_{false};
  MPI_Comm world_ = MPI_COMM_NULL;
  bool started_ = false;
  int rank_ = 0;
  const TimeLimit silence_;
  std::vector<Peer> peers_;  // by rank
  std::jthread heartbeats_;
};

// Throws MPI's description of its failure.
void check_mpi(int status, const char* doing);

}  // namespace lockstep
