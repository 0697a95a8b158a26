#include "tests/engine/fake_stream.h"

#include "lockstep/engine/trace.h"

namespace lockstep::testing_engine {

using Lock = std::unique_lock<std::mutex>;

void FakeStream::Progress::wait_for(std::uint64_t ticket) {
  Lock lock(mutex);
  changed.wait(lock, [&] { return reached >= ticket; });
}

FakeStream::FakeStream(FakeStreamOptions options)
    : options_(options), random_(options.seed), thread_([this](const std::stop_token& stop) { work(stop); }) {}

FakeStream::~FakeStream() = default;

void FakeStream::queue(std::function<void()> work) {
  push([this, work = std::move(work)] {
    const auto fail = [&](bool for_good) {
      const Lock lock(progress_->mutex);
      failed_.insert(progress_->reached + 1);
      dead_ |= for_good;
    };
    const auto dead = [&] {
      const Lock lock(progress_->mutex);
      return dead_;
    };
    try {
      if (!dead()) work();
    } catch (const Death&) {
      fail(true);
    } catch (...) {
      fail(false);
    }
  });
}

void FakeStream::push(std::function<void()> item) {
  {
    const Lock lock(mutex_);
    queue_.push_back(std::move(item));
  }
  filled_.notify_one();
}

std::uint64_t FakeStream::record(bool timed) {
  const std::uint64_t ticket = ++recorded_;
  push([this, ticket, timed] {
    if (timed) {
      const Lock lock(mutex_);
      times_[ticket] = Trace::steady_ns();
    }
    const Lock lock(progress_->mutex);
    progress_->reached = ticket;
    progress_->changed.notify_all();
  });
  return ticket;
}

void FakeStream::wait(Stream& other, std::uint64_t ticket) {
  ++waits_;
  push([its = dynamic_cast<FakeStream&>(other).progress_, ticket] { its->wait_for(ticket); });
}

std::uint64_t FakeStream::finished() {
  const Lock lock(progress_->mutex);
  if (!failed_.empty()) {
    const std::uint64_t failed = *failed_.begin();
    if (!dead_) failed_.erase(failed);
    const bool exact = options_.exact && !options_.vague && !dead_;
    throw StreamError("the device says no", options_.vague ? told_ + 1 : failed,
                      exact ? StreamError::Lost::ticket : StreamError::Lost::from_ticket);
  }
  return told_ = progress_->reached;
}

void FakeStream::synchronize(std::uint64_t ticket) noexcept { progress_->wait_for(ticket); }

TimeSpan FakeStream::times_of(std::uint64_t begin, std::uint64_t end) {
  const Lock lock(mutex_);
  return {times_.extract(begin).mapped(), times_.extract(end).mapped()};
}

// Does what was queued before it stops.
void FakeStream::work(const std::stop_token& stop) {
  Lock lock(mutex_);
  while (filled_.wait(lock, stop, [this] { return !queue_.empty(); })) {
    const std::function<void()> next = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    if (options_.most_delay.count() > 0 && random_() % 2) {
      const auto delay = random_() % static_cast<std::uint64_t>(options_.most_delay.count());
      std::this_thread::sleep_for(std::chrono::microseconds(delay));
    }
    next();
    lock.lock();
  }
}

}  // namespace lockstep::testing_engine
