// Internal: the threads of a compute lane: its worker, and helpers that share the worker's loops.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "lockstep/base/futex.h"

namespace lockstep {

struct SpinPolicy;

// Helpers take the parts of a loop as they come, so a helper that gets no core costs nothing: the worker computes its
// parts. OpenMP waits for every thread of a team and spins for milliseconds; beside other work on the same cores, small
// loops took ten times as long.
class ThreadTeam {
 public:
  // At least 1, the calling thread included. Helpers start with the first loop, on the cores of the thread that runs
  // it.
  explicit ThreadTeam(int threads) : threads_(threads) {}
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int threads() const { return threads_; }

  // Calls call(team, part) for each part in [0, parts), on at most `threads` threads.
  using Region = void (*)(int threads, int parts, void (*call)(void* team, int part), void* team);
  // From now on, the loops run in this region instead of on helpers.
  void use(Region region) { region_ = region; }

  // Calls fn(part) for each part in [0, parts) and returns when all calls have returned. If calls throw, throws the
  // exception of the first such part. Only one thread at a time may use a team, and fn must not.
  template <typename F>
  void run(int parts, const F& fn) {
    run({&fn, [](const void* f, int part) { (*static_cast<const F*>(f))(part); }}, parts);
  }

 private:
  struct Body {
    const void* function = nullptr;
    void (*call)(const void*, int) = nullptr;
  };
  void run(Body body, int parts);
  void share(int parts);
  void start();
  void help(SpinPolicy* policy);
  // Takes and computes parts until none is left.
  void work();
  void compute(int part) noexcept;
  void stop() noexcept;

  const int threads_;
  std::vector<std::thread> helpers_;
  bool started_ = false;
  Region region_ = nullptr;

  Body body_;
  int parts_ = 0;
  // Parts that nobody has taken; a thread that lowers it has taken one. The worker cannot end the loop before that part
  // is computed, so the fields above are those of the part's own loop.
  std::atomic<int> left_{0};
  FutexWord computed_{0};
  // Changes with each loop. Helpers sleep on it.
  FutexWord loop_{0};
  std::atomic<int> sleeping_helpers_{0};
  std::atomic<bool> worker_sleeps_{false};
  std::atomic<bool> stopping_{false};

  std::mutex mutex_;  // protects the members below
  std::exception_ptr error_;
  int failed_part_ = 0;
};

}  // namespace lockstep
