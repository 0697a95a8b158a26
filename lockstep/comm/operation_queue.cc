#include "lockstep/comm/operation_queue.h"

#include <chrono>
#include <utility>

#include "lockstep/base/spin.h"

namespace lockstep {
namespace {

// The waiting thread usually runs the operation itself. Waking the queue's thread for each operation would cost more
// than the operation, so the thread polls a few times after each operation for one that no thread waits for.
constexpr std::chrono::microseconds kPoll{100};
constexpr int kPolls = 10;
// An idle thread ends after this time; the next operation starts a new one.
constexpr std::chrono::seconds kIdle{2};

}  // namespace

void Work::wait() const {
  if (!state_) return;
  if (!done()) {
    if (auto queue = state_->queue.lock()) queue->help(*state_);
    while (!done()) state_->done.wait(0);
  }
  if (state_->error) std::rethrow_exception(state_->error);
}

bool Work::done() const { return !state_ || state_->done.load(std::memory_order_acquire) != 0; }

std::shared_ptr<Work::State> OperationQueue::add(std::function<void()> run) {
  auto state = std::make_shared<Work::State>();
  state->queue = weak_from_this();
  items_.push_back({std::move(run), state});
  return state;
}

void OperationQueue::run(std::function<void()> run) {
  std::unique_lock lock(mutex_);
  const std::shared_ptr<Work::State> state = add(std::move(run));
  lock.unlock();
  help(*state);
  if (state->error) std::rethrow_exception(state->error);
}

Work OperationQueue::push(std::function<void()> run) {
  std::unique_lock lock(mutex_);
  // Starts the thread first: if that threw after add(), no thread would run the operation.
  if (!thread_runs_) start_thread();
  std::shared_ptr<Work::State> state = add(std::move(run));
  ++pushed_;
  const bool wake = asleep_ && !busy_;
  lock.unlock();
  if (wake) changed_.notify_all();
  return Work(std::move(state));
}

void OperationQueue::help(Work::State& state) {
  const auto done = [&] { return state.done.load(std::memory_order_acquire) != 0; };
  std::unique_lock lock(mutex_);
  while (!done()) {
    if (!busy_ && !items_.empty()) {
      run_next(lock);
      continue;
    }
    // Another thread is running an item, and may leave the next item to this thread.
    const std::uint32_t ended = ended_.load();
    lock.unlock();
    if (!may_spin_ || !spin_until([&] { return ended_.load() != ended; }, kSpinTime)) {
      const Asleep asleep;
      ended_.wait(ended);
    }
    lock.lock();
  }
  const bool more = asleep_ && !busy_ && !items_.empty();
  lock.unlock();
  if (more) changed_.notify_all();
}

void OperationQueue::run_next(std::unique_lock<std::mutex>& lock) {
  Item item = std::move(items_.front());
  items_.pop_front();
  busy_ = true;
  lock.unlock();
  try {
    item.run();
  } catch (...) {
    item.state->error = std::current_exception();
  }
  item.run = nullptr;  // releases what the operation captured, before any thread sees that it is done
  lock.lock();
  busy_ = false;
  item.state->done.store(1, std::memory_order_release);
  item.state->done.notify_all();
  ended_.fetch_add(1);
  ended_.notify_all();
  if (closing_) changed_.notify_all();
}

void OperationQueue::start_thread() {
  if (thread_.joinable()) thread_.join();  // it has ended or is about to
  thread_ = std::thread([this] { thread_main(); });
  thread_runs_ = true;
}

void OperationQueue::thread_main() {
  std::unique_lock lock(mutex_);
  std::uint64_t seen = 0;
  int polls = 0;
  for (;;) {
    const auto has_work = [&] { return !busy_ && !items_.empty(); };
    if (has_work()) {
      run_next(lock);
      continue;
    }
    if (closing_ && items_.empty()) break;
    if (std::exchange(seen, pushed_) != pushed_) polls = kPolls;
    if (polls > 0) {
      --polls;
      changed_.wait_for(lock, kPoll);
      continue;
    }
    asleep_ = true;
    const bool idle = !changed_.wait_for(lock, kIdle, [&] { return closing_ || has_work(); });
    asleep_ = false;
    if (idle && !busy_ && items_.empty()) break;
  }
  thread_runs_ = false;
}

bool OperationQueue::idle() {
  std::lock_guard lock(mutex_);
  return !busy_ && items_.empty();
}

void OperationQueue::close() {
  std::unique_lock lock(mutex_);
  closing_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return !busy_ && items_.empty(); });
  std::thread thread = std::move(thread_);
  lock.unlock();
  if (thread.joinable()) thread.join();
}

}  // namespace lockstep
