// A device's queue of work without a device: a thread that does it in order, now and then late.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "lockstep/device/stream.h"

namespace lockstep::testing_engine {

struct FakeStreamOptions {
  std::uint64_t seed = 0;
  // Between two pieces of work, at random.
  std::chrono::microseconds most_delay{0};
  // Says of a failure only that it came after what finished() has returned last; else it names the ticket.
  bool vague = false;
  // A failure that is not a Death is one of the data: later work is good.
  bool exact = false;
};

class FakeStream final : public Stream {
 public:
  explicit FakeStream(FakeStreamOptions options = {});
  ~FakeStream() override;

  // Work that may take its time. An exception fails the device once; a `Death` fails it for good: later work is
  // dropped, and waits return.
  struct Death {};
  void queue(std::function<void()> work);
  std::uint64_t record(bool timed) override;
  void wait(Stream& other, std::uint64_t ticket) override;
  std::uint64_t finished() override;
  void synchronize(std::uint64_t ticket) noexcept override;
  TimeSpan times_of(std::uint64_t begin, std::uint64_t end) override;

  // How often wait was called. For the thread that queues.
  int waits() const { return waits_; }

 private:
  // Others may wait for it when the stream is gone.
  struct Progress {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t reached = 0;
    void wait_for(std::uint64_t ticket);
  };
  void push(std::function<void()> item);
  void work(const std::stop_token& stop);

  const FakeStreamOptions options_;
  std::mt19937_64 random_;  // the thread's
  const std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
  std::mutex mutex_;
  std::condition_variable_any filled_;
  std::deque<std::function<void()>> queue_;
  std::map<std::uint64_t, std::int64_t> times_;
  std::uint64_t recorded_ = 0;
  int waits_ = 0;
  // Also with progress_->mutex.
  std::uint64_t told_ = 0;
  std::set<std::uint64_t> failed_;  // tickets of failures that nobody has been told of
  bool dead_ = false;
  std::jthread thread_;  // last: it uses all else
};

}  // namespace lockstep::testing_engine
