// Internal: the source of the keys of random operations: (seed, step, shard, number of earlier draws of the shard in
// this step). No part of a key depends on devices, so dropout masks are the same on all devices. The step counts the
// steps of all optimizers together. With one optimizer it equals that optimizer's own number; with several, no key
// repeats.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/engine/pending_updates.h"

namespace lockstep {

class RandomState {
 public:
  void set_seed(std::uint64_t seed);
  std::uint64_t seed() const;
  // Begins a step: every shard's draws count from zero again. Loading a checkpoint sets the step that it contains.
  void set_step(std::uint64_t step);
  // The same, `count` steps ahead, or back if it is negative, but not below 0. Optimizers call it.
  void add_steps(std::int64_t count);
  // The latest step does not count if this update is left out; see PendingUpdates. Once the program knows, draws are
  // those of a run without the step.
  void count_if_done(const std::shared_ptr<Engine>& engine, Resource done);
  // Waits for all such updates. From then on, the steps are final.
  void settle_steps();
  std::uint64_t step() const;
  // All that decides the next keys of this seed, to go back there. A step that is left out in between does not count
  // after the return either.
  struct Position {
    std::uint64_t step = 0;
    std::vector<std::uint64_t> draws = {};
    std::uint64_t left_out = 0;  // the steps taken back until then
  };
  Position position() const;
  void set_position(Position position);
  // The number of calls before: models that begin with default values ask once each.
  std::uint64_t next_model();
  // Shard -1 stands for tensors that are the same for all shards; it has its own draws.
  RandomKey next(int shard);

 private:
  void take_back() const;
  void take_back(std::int64_t left_out) const;

  mutable std::mutex mutex_;
  std::uint64_t seed_ = 0;
  mutable std::uint64_t step_ = 0;
  mutable std::vector<std::uint64_t> draws_;  // by shard, from -1
  mutable PendingUpdates updates_;
  mutable std::uint64_t left_out_ = 0;
  std::uint64_t models_ = 0;
};

// The seed that loaders and samplers follow if their options name none: that of this process's Runtimes, 0 without one.
// Throws if they have different seeds; `what` names who asks. See docs/decisions/36-one-seed-by-default.md.
std::uint64_t default_seed(std::string_view what);

// While it lives, default_seed() is the seed of `random`. Each Runtime has one.
class DefaultSeed {
 public:
  explicit DefaultSeed(std::shared_ptr<const RandomState> random);
  ~DefaultSeed();
  DefaultSeed(const DefaultSeed&) = delete;
  DefaultSeed& operator=(const DefaultSeed&) = delete;

 private:
  std::shared_ptr<const RandomState> random_;
};

}  // namespace lockstep
