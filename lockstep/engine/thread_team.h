// Internal: the threads of a compute lane: its worker, and helpers that share the worker's loops.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>

#include "lockstep/base/futex.h"
#include "lockstep/engine/helper_pool.h"

namespace lockstep {

// How long threads spin if the team belongs to no engine.
inline constexpr std::chrono::nanoseconds kHelperSpin{20'000};

// Helpers take the parts of a loop as they come, so a helper that gets no core costs nothing: the worker computes its
// parts. OpenMP waits for every thread of a team and spins for milliseconds; with other work on the same cores, its
// small loops took ten times as long.
class ThreadTeam {
 public:
  // `threads`: at least 1, including the calling thread. The helpers help only this team.
  explicit ThreadTeam(int threads);
  // Uses the pool's helpers, which may help other teams, too. Destroy the pool before the team.
  explicit ThreadTeam(HelperPool& pool);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // Calls call(team, part) for each part in [0, parts), on at most `threads` threads.
  using Region = void (*)(int threads, int parts, void (*call)(void* team, int part), void* team);
  // From now on, the loops run in this region, on this number of threads, instead of on helpers.
  void use(Region region, int threads) { region_ = region, region_threads_ = threads; }

  // Calls fn(part) for each part in [0, parts) and returns when all calls have returned. If calls throw, throws the
  // exception of the first such part. Only one thread at a time may use a team, and fn must not.
  template <typename F>
  void run(int parts, const F& fn) {
    run({&fn, [](const void* f, int part) { (*static_cast<const F*>(f))(part); }}, parts);
  }

 private:
  friend class HelperPool;
  struct Body {
    const void* function = nullptr;
    void (*call)(const void*, int) = nullptr;
  };
  void run(Body body, int parts);
  void share(int parts);
  // Takes and computes parts until none is left.
  void work();
  void compute(int part) noexcept;

  const std::unique_ptr<HelperPool> own_pool_;
  HelperPool& pool_;
  ThreadTeam* next_ = nullptr;  // in the pool's list
  Region region_ = nullptr;
  int region_threads_ = 1;

  Body body_;
  int parts_ = 0;
  // Number of parts that no thread has taken; a thread that lowers it takes one. The worker cannot end the loop before
  // that part is computed, so the fields above are those of the part's own loop.
  alignas(64) std::atomic<int> left_{0};
  FutexWord computed_{0};
  std::atomic<bool> worker_sleeps_{false};

  std::mutex mutex_;  // protects the members below
  std::exception_ptr error_;
  int failed_part_ = 0;
};

}  // namespace lockstep
