// Processes that run a function of this program, one for each rank, and can form a process group.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace lockstep {

struct SpawnOptions {
  int nprocs = 1;
  // Wait for them; otherwise Spawned::join() does.
  bool join = true;
  // Not joined, they are killed with what spawn() returned, instead of being waited for. Either way they do not
  // outlive this process, however it ends.
  bool daemon = false;
  // The other ranks get this time after one has failed, to say why they fail. Then they are asked to end, and after the
  // same time again killed.
  std::chrono::milliseconds grace{5'000};
};

class Spawned {
 public:
  ~Spawned();
  Spawned(Spawned&&) noexcept;
  Spawned& operator=(Spawned&&) noexcept;

  // Until all have ended. Throws how the first of them failed: `rank 1 failed: conv2d: input has …`, `rank 2 was killed
  // by signal 9 (Killed)`. One that only lost another rank is not taken for the first. Again and again, it is the same.
  void join();

 private:
  class Impl;
  friend Spawned spawn(const std::function<void(int)>&, const SpawnOptions&);
  friend Spawned spawn(int, char**, const std::function<void(int)>&, const SpawnOptions&);
  explicit Spawned(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Calls fn(rank) in nprocs new processes. Each has RANK, WORLD_SIZE and what else init_process_group() looks for; the
// store is this process's. An exception ends its process with status 1, and its message comes back.
//
// By fork(): the processes begin with all that this one has. That is safe only while it has a single thread, so before
// any Runtime, and where an earlier spawn() still runs it is not; an error otherwise.
Spawned spawn(const std::function<void(int rank)>& fn, const SpawnOptions& options = {});

// By running this program anew with the same arguments, whatever it does at the time. In the new processes, main() has
// to come to this same call: it runs fn(rank) and ends the process. Before it, main() should do what a rank may do,
// too.
Spawned spawn(int argc, char** argv, const std::function<void(int rank)>& fn,
              const SpawnOptions& options = {});

}  // namespace lockstep
