// Where the keys of random operations come from: (seed, step, shard, how many the shard drew in this step before).
// Nothing of it depends on devices, so neither do dropout masks.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "lockstep/base/random.h"

namespace lockstep {

class RandomState {
 public:
  void set_seed(std::uint64_t seed);
  std::uint64_t seed() const;
  // Begins a step: every shard's draws count from zero again. Called by Optimizer::step with its own count.
  void set_step(std::uint64_t step);
  std::uint64_t step() const;
  RandomKey next(int shard);

 private:
  mutable std::mutex mutex_;
  std::uint64_t seed_ = 0;
  std::uint64_t step_ = 0;
  std::vector<std::uint64_t> draws_;  // by shard
};

}  // namespace lockstep
