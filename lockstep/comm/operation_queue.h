// Internal: runs operations in the order in which they were pushed. A thread that waits for an operation may run it,
// which saves two thread switches; otherwise the queue's own thread runs it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "lockstep/comm/process_group.h"

namespace lockstep {

class OperationQueue : public std::enable_shared_from_this<OperationQueue> {
 public:
  // may_spin: whether to spin while another thread runs the awaited operation.
  explicit OperationQueue(bool may_spin) : may_spin_(may_spin) {}
  ~OperationQueue() { close(); }
  OperationQueue(const OperationQueue&) = delete;
  OperationQueue& operator=(const OperationQueue&) = delete;

  // The Work throws what `run` throws.
  Work push(std::function<void()> run);
  // Does the same as push() and Work::wait(), but does not wake the queue's thread.
  void run(std::function<void()> run);
  // Waits until the operation is done. Runs it and earlier operations unless another thread does. Never throws.
  void help(Work::State& state);
  bool idle();
  // Runs everything in the queue, then returns. Push nothing afterwards.
  void close();

 private:
  struct Item {
    std::function<void()> run;
    std::shared_ptr<Work::State> state;
  };

  void thread_main();
  std::shared_ptr<Work::State> add(std::function<void()> run);
  // Runs the first item. Call it with the lock held; it returns with the lock held.
  void run_next(std::unique_lock<std::mutex>& lock);
  void start_thread();

  const bool may_spin_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool busy_ = false;                    // a thread runs an item
  std::atomic<std::uint32_t> ended_{0};  // number of finished items; threads wait for it to change
  bool asleep_ = false;                  // the queue's thread sleeps and needs a wake-up
  bool closing_ = false;
  std::uint64_t pushed_ = 0;
  bool thread_runs_ = false;
  std::thread thread_;
};

struct Work::State {
  std::atomic<std::uint32_t> done{0};
  std::exception_ptr error;  // written before `done`
  std::weak_ptr<OperationQueue> queue;
};

}  // namespace lockstep
