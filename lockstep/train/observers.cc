#include "lockstep/train/observers.h"

#include <algorithm>
#include <utility>

#include "lockstep/engine/failure.h"
#include "lockstep/net/comm_error.h"

namespace lockstep {

std::string ObserverFailure::str() const {
  return fmt::format("{} is {}: {}", observer, goes_on ? "not up to date" : "incomplete", error);
}

void Observers::add(Make make) { makes_.push_back(std::move(make)); }

void Observers::start(const TrainingStart& start) {
  drop();
  for (const Make& make : makes_) {
    std::shared_ptr<TrainingObserver> observer = make();
    if (!observer) continue;
    auto* steps = dynamic_cast<StepObserver*>(observer.get());
    entries_.push_back({.observer = std::move(observer), .steps = steps});
  }
  for (Entry& entry : entries_) entry.observer->start(start);
}

// An observer that goes on after a failure rewrites its file here, so its error is cleared first.
std::vector<ObserverFailure> Observers::end(const TrainingResult& result) {
  for (Entry& entry : entries_) {
    if (!entry.ended) entry.error.clear();
    call(entry, [&] { entry.observer->end(result); });
  }
  std::vector<ObserverFailure> failures;
  for (const Entry& e : entries_) {
    if (!e.error.empty()) failures.push_back({e.observer->label(), e.error, !e.ended});
  }
  drop();
  return failures;
}

void Observers::abort(const std::string& why) noexcept {
  for (Entry& entry : entries_) {
    try {
      call(entry, [&] {
        if (entry.steps) entry.steps->abandon();
        entry.observer->abort(why);
      });
    } catch (...) {
      entry.ended = true;  // why abort() was called matters more than this error
    }
  }
  drop();
}

bool Observers::observes(std::int64_t step) const {
  return std::ranges::any_of(entries_, [&](const Entry& e) { return !e.ended && e.steps && e.steps->observes(step); });
}

void Observers::each(const std::function<void(TrainingObserver&)>& f) {
  for (Entry& entry : entries_) call(entry, [&] { f(*entry.observer); });
}

void Observers::each_step(const std::function<void(StepObserver&)>& f) {
  for (Entry& entry : entries_) {
    if (entry.steps) call(entry, [&] { f(*entry.steps); });
  }
}

void Observers::call(Entry& entry, const std::function<void()>& f) {
  if (entry.ended) return;
  const TrainingObserver::AfterFailure then = entry.observer->after_failure();
  if (then == TrainingObserver::AfterFailure::ends_training) return f();
  const bool goes_on = then == TrainingObserver::AfterFailure::goes_on;
  try {
    return f();
  } catch (const TaskError&) {
    throw;
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    entry.error = error.what();
  }
  entry.ended = !goes_on;
  if (std::exchange(entry.told, true)) return;
  const ObserverFailure failure{entry.observer->label(), entry.error, goes_on};
  for (Entry& other : entries_) {
    if (&other != &entry) call(other, [&] { other.observer->failed(failure); });
  }
}

}  // namespace lockstep
