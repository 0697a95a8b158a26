// Runs operations one after the other, in the order they were pushed: on a thread of its own, or on one that waits for
// them and would otherwise do nothing, which saves two hand-overs.
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

#include "lockstep/comm/work.h"

namespace lockstep {

class OperationQueue : public std::enable_shared_from_this<OperationQueue> {
 public:
  // Whether to spin while another thread runs what one waits for.
  explicit OperationQueue(bool may_spin) : may_spin_(may_spin) {}
  ~OperationQueue() { close(); }
  OperationQueue(const OperationQueue&) = delete;
  OperationQueue& operator=(const OperationQueue&) = delete;

  // The Work throws what `run` throws.
  Work push(std::function<void()> run);
  // The same and Work::wait, but leaves the queue's own thread asleep.
  void run(std::function<void()> run);
  // Until that one is done, running what is next meanwhile. Never throws.
  void help(Work::State& state);
  bool idle();
  // Runs what is queued, and returns when that is done. Nothing is pushed from now on.
  void close();

 private:
  struct Item {
    std::function<void()> run;
    std::shared_ptr<Work::State> state;
  };

  void thread_main();
  std::shared_ptr<Work::State> add(std::function<void()> run);
  // Runs the first item; called with the lock, and returns with it.
  void run_next(std::unique_lock<std::mutex>& lock);
  void start_thread();

  const bool may_spin_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool busy_ = false;    // someone runs an item
  std::atomic<std::uint32_t> ended_{0};  // items: who waits for its turn looks here
  bool asleep_ = false;  // the thread has to be told of items
  bool closing_ = false;
  std::uint64_t pushed_ = 0;
  bool thread_runs_ = false;
  std::thread thread_;
};

struct Work::State {
  std::atomic<std::uint32_t> done{0};
  std::exception_ptr error;  // written before done
  std::weak_ptr<OperationQueue> queue;
};

}  // namespace lockstep
