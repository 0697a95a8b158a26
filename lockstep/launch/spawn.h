// Runs a function of this program in new processes, one for each rank (torch.multiprocessing.spawn). These processes
// can form a process group.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

struct SpawnOptions {
  int nprocs = 1;
  // True: spawn() waits for the processes. Otherwise call Spawned::join().
  bool join = true;
  // True: the destructor of Spawned ends unjoined processes instead of waiting for them. In either case, the processes
  // never outlive this one.
  bool daemon = false;
  // After a rank fails, the other ranks have this long to report their errors. Then they get SIGTERM, and after the
  // same time again SIGKILL.
  std::chrono::milliseconds grace{5'000};
};

class Spawned {
 public:
  ~Spawned();
  Spawned(Spawned&&) noexcept;
  Spawned& operator=(Spawned&&) noexcept;

  // Waits until all processes have ended. Throws the failure of the first rank that failed: `rank 1 failed: conv2d:
  // input has …`, `rank 2 was killed by signal 9 (Killed)`. A rank that only lost another rank does not count as the
  // first. Later calls throw the same error.
  void join();

 private:
  class Impl;
  friend Spawned spawn(const std::function<void(int)>&, const SpawnOptions&);
  friend Spawned spawn(int, char**, const std::function<void(int)>&, const SpawnOptions&);
  explicit Spawned(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Calls fn(rank) in nprocs new processes. Each has RANK, WORLD_SIZE, and the other variables that init_process_group()
// reads; this process hosts the store. An exception ends its process with status 1, and join() reports its message.
//
// This overload uses fork(), so the processes start with a copy of this process's memory. fork() is safe only in a
// process with one thread, and CUDA does not survive it. Call spawn() before you make a Runtime or count GPUs
// (device_count(), find_devices()), and join the ranks of an earlier spawn() first. Otherwise it throws.
Spawned spawn(const std::function<void(int rank)>& fn, const SpawnOptions& options = {});

// This overload runs the program again with the same arguments. In each new process, main() must reach this same call,
// which runs fn(rank) and ends the process. Code in main() before the call runs in every rank.
Spawned spawn(int argc, char** argv, const std::function<void(int rank)>& fn, const SpawnOptions& options = {});

}  // namespace lockstep
