#include "lockstep/runtime/random_state.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/runtime/step_recorder.h"

namespace lockstep {
namespace {

thread_local const char* keyed_scope = nullptr;
thread_local std::shared_ptr<RandomState> own_state;

}  // namespace

KeyedScope::KeyedScope(const char* where) : outer_(std::exchange(keyed_scope, where)) {}
KeyedScope::~KeyedScope() { keyed_scope = outer_; }
void KeyedScope::check_draw(std::string_view what) {
  check(keyed_scope == nullptr,
        "{}: in {}, the order of draws depends on threads, expected a seed, or the key of get(index, key) as "
        "{{.key = key}}",
        what, keyed_scope == nullptr ? "" : keyed_scope);
}

std::uint64_t Seeding::count(std::uint64_t more) {
  const std::lock_guard lock(mutex_);
  std::uint64_t& before = counts_[this_thread()];
  return std::exchange(before, before + more);
}

bool Seeding::becomes_shared(std::uint64_t thread) {
  const std::lock_guard lock(mutex_);
  if (!first_) first_ = thread;
  return by_ != By::thread && *first_ != thread && !std::exchange(shared_, true);
}

// A number of a thread that has ended is not used again, unlike std::thread::id.
std::uint64_t Seeding::this_thread() {
  static std::atomic<std::uint64_t> threads = 0;
  thread_local const std::uint64_t number = threads++;
  return number;
}

RandomState::RandomState()
    : source_(std::make_shared<char>()), seeding_(std::make_shared<Seeding>(seed_, Seeding::By::process, source_)) {}

void RandomState::set_seed(std::uint64_t seed, Seeding::By by) {
  std::scoped_lock lock(mutex_);
  seed_ = seed;
  seeding_ = std::make_shared<Seeding>(seed, by, source_);
  draws_.clear();
}

void RandomState::restart(std::uint64_t seed, Seeding::By by) {
  std::scoped_lock lock(mutex_);
  seed_ = seed;
  step_ = 0;
  seeding_ = std::make_shared<Seeding>(seed, by, source_);
  draws_.clear();
  updates_.clear();
}

std::uint64_t RandomState::seed() const {
  std::scoped_lock lock(mutex_);
  return seed_;
}

void RandomState::set_step(std::uint64_t step) {
  std::scoped_lock lock(mutex_);
  step_ = step;
  draws_.clear();
  updates_.clear();
}

void RandomState::add_steps(std::int64_t count) {
  std::scoped_lock lock(mutex_);
  const auto back = count < 0 ? std::uint64_t{0} - static_cast<std::uint64_t>(count) : 0;
  step_ = count < 0 ? step_ - std::min(step_, back) : step_ + static_cast<std::uint64_t>(count);
  draws_.clear();
}

void RandomState::count_if_done(const std::shared_ptr<Engine>& engine, Resource done) {
  std::scoped_lock lock(mutex_);
  take_back();
  updates_.add(engine, std::move(done));
}

void RandomState::settle_steps() {
  std::scoped_lock lock(mutex_);
  take_back(updates_.wait_left_out());
}

// Call these with the lock.
void RandomState::take_back() const { take_back(updates_.take_left_out()); }
void RandomState::take_back(std::int64_t left_out) const {
  if (left_out == 0) return;
  left_out_ += static_cast<std::uint64_t>(left_out);
  step_ -= std::min(step_, static_cast<std::uint64_t>(left_out));
  draws_.clear();
}

std::uint64_t RandomState::step() const {
  std::scoped_lock lock(mutex_);
  take_back();
  return step_;
}

RandomState::Position RandomState::position() const {
  std::scoped_lock lock(mutex_);
  take_back();
  return {step_, draws_, left_out_};
}

void RandomState::set_position(Position position) {
  std::scoped_lock lock(mutex_);
  take_back();
  const std::uint64_t since = left_out_ - position.left_out;
  step_ = position.step - std::min(position.step, since);
  draws_ = since == 0 ? std::move(position.draws) : std::vector<std::uint64_t>();
}

std::shared_ptr<Seeding> RandomState::seeding() const {
  const std::lock_guard lock(mutex_);
  return seeding_;
}

std::shared_ptr<RandomState> RandomState::for_thread(const std::shared_ptr<RandomState>& state) {
  return own_state ? own_state : state;
}
const std::shared_ptr<RandomState>& RandomState::of_thread() { return own_state; }
void RandomState::set_of_thread(std::shared_ptr<RandomState> state) { own_state = std::move(state); }

RandomKey RandomState::next(int shard) {
  if (StepRecorder* recorder = StepRecorder::current()) recorder->refuse("it draws its own random keys");
  std::scoped_lock lock(mutex_);
  take_back();
  // The first element counts the draws of shard -1.
  const auto place = static_cast<std::size_t>(std::max(shard, -1) + 1);
  if (draws_.size() <= place) draws_.resize(place + 1);
  const std::uint64_t owner = shard < 0 ? ~std::uint64_t{0} : static_cast<std::uint64_t>(shard);
  return random_key(seed_, {step_, owner, draws_[place]++});
}

}  // namespace lockstep
