#include "lockstep/runtime/random_state.h"

#include <algorithm>

#include "lockstep/runtime/step_recorder.h"

namespace lockstep {

void RandomState::set_seed(std::uint64_t seed) {
  std::scoped_lock lock(mutex_);
  seed_ = seed;
  draws_.clear();
}

std::uint64_t RandomState::seed() const {
  std::scoped_lock lock(mutex_);
  return seed_;
}

void RandomState::set_step(std::uint64_t step) {
  std::scoped_lock lock(mutex_);
  step_ = step;
  draws_.clear();
}

std::uint64_t RandomState::step() const {
  std::scoped_lock lock(mutex_);
  return step_;
}

RandomKey RandomState::next(int shard) {
  if (StepRecorder* recorder = StepRecorder::current()) recorder->refuse("it asks for random keys of its own");
  std::scoped_lock lock(mutex_);
  auto s = static_cast<std::size_t>(std::max(shard, 0));
  if (draws_.size() <= s) draws_.resize(s + 1);
  return random_key(seed_, {step_, s, draws_[s]++});
}

}  // namespace lockstep
