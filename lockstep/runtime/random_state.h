// Where the keys of random operations come from: (seed, step, shard, how many the shard drew in this step before).
// Nothing of it depends on devices, so neither do dropout masks. The step counts those of all optimizers together: with one
// of them it is that one's own number, and with several no key comes twice.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "lockstep/base/random.h"

namespace LOCKSTEP_API lockstep {

class RandomState {
 public:
  void set_seed(std::uint64_t seed);
  std::uint64_t seed() const;
  // Begins a step: every shard's draws count from zero again. A checkpoint has the step, and sets it.
  void set_step(std::uint64_t step);
  // The same, `count` steps on, or back where it is negative, to 0 at most. Called by optimizers.
  void add_steps(std::int64_t count);
  std::uint64_t step() const;
  // shard -1: of a tensor that is the same for all shards, which has draws of its own.
  RandomKey next(int shard);

 private:
  mutable std::mutex mutex_;
  std::uint64_t seed_ = 0;
  std::uint64_t step_ = 0;
  std::vector<std::uint64_t> draws_;  // by shard, from -1
};

}  // namespace lockstep
