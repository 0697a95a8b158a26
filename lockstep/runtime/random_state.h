// Internal: the source of the keys of random operations: (seed, step, shard, number of earlier draws of the shard in
// this step). No part of a key depends on devices, so dropout masks are the same on all devices. The step counts the
// steps of all optimizers together. With one optimizer it equals that optimizer's own number; with several, no key
// repeats.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/engine/pending_updates.h"

namespace lockstep {

// What a new model takes for its initial values: a seed, and the number of trainable parameters that the thread has
// made since this seed was set. So the values depend neither on other threads nor on when they are first read.
class Seeding {
 public:
  enum class By : std::uint8_t { process, runtime, thread };  // runtime: RuntimeOptions::seed
  Seeding(std::uint64_t seed, By by, std::shared_ptr<const void> source)
      : seed_(seed), by_(by), source_(std::move(source)) {}
  std::uint64_t seed() const { return seed_; }
  By by() const { return by_; }
  // The same for all seedings of one RandomState.
  const std::shared_ptr<const void>& source() const { return source_; }
  // Counts `more` parameters of the calling thread. Returns their number before.
  std::uint64_t count(std::uint64_t more);
  // Returns true once: when parameters of a second thread first use this seed, unless a thread set it for itself alone.
  bool becomes_shared(std::uint64_t thread);
  // Returns the number of the calling thread, which no other thread of this process ever has.
  static std::uint64_t this_thread();

 private:
  const std::uint64_t seed_;
  const By by_;
  const std::shared_ptr<const void> source_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> counts_;  // by thread
  std::optional<std::uint64_t> first_;             // the thread whose parameters began first
  bool shared_ = false;
};

class RandomState {
 public:
  RandomState();
  // Sets the seed and keeps the step.
  void set_seed(std::uint64_t seed, Seeding::By by = Seeding::By::runtime);
  // Sets the seed and goes to step 0.
  void restart(std::uint64_t seed, Seeding::By by = Seeding::By::process);
  std::uint64_t seed() const;
  // Begins a step: every shard's draws count from zero again. Loading a checkpoint sets the step that it contains.
  void set_step(std::uint64_t step);
  // Does the same, `count` steps ahead, or back if `count` is negative, but not below 0. Optimizers call it.
  void add_steps(std::int64_t count);
  // Takes the latest step back if this update is left out; see PendingUpdates. Once the program knows of that, draws
  // are those of a run without the step.
  void count_if_done(const std::shared_ptr<Engine>& engine, Resource done);
  // Waits for all such updates. From then on, the steps are final.
  void settle_steps();
  std::uint64_t step() const;
  // Everything that decides the next keys of this seed, so that set_position() can go back there. A step that is left
  // out in between does not count after that, too.
  struct Position {
    std::uint64_t step = 0;
    std::vector<std::uint64_t> draws = {};
    std::uint64_t left_out = 0;  // the steps taken back until then
  };
  Position position() const;
  void set_position(Position position);
  // Returns the seeding of models that are made now.
  std::shared_ptr<Seeding> seeding() const;
  // Returns the thread's own state if it has one, otherwise `state`. manual_seed() in a thread other than the main
  // thread gives the thread its own state.
  static std::shared_ptr<RandomState> for_thread(const std::shared_ptr<RandomState>& state);
  static const std::shared_ptr<RandomState>& of_thread();
  static void set_of_thread(std::shared_ptr<RandomState> state);
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
  const std::shared_ptr<const void> source_;
  std::shared_ptr<Seeding> seeding_;
};

// In its scope, operations of this thread must not draw from a random state, because the order of the draws would
// depend on threads: each needs a seed or a key of its own. `where` outlives the scope: "Dataset::get".
class KeyedScope {
 public:
  explicit KeyedScope(const char* where);
  ~KeyedScope();
  KeyedScope(const KeyedScope&) = delete;
  KeyedScope& operator=(const KeyedScope&) = delete;
  // Throws in such a scope; `what` names the operation.
  static void check_draw(std::string_view what);

 private:
  const char* outer_;
};

}  // namespace lockstep
