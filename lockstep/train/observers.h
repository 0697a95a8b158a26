// Internal: tells the observers of a training what happens, and applies the rule for observers that throw (see
// TrainingObserver).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/train/step_observer.h"
#include "lockstep/train/training_observer.h"

namespace lockstep {

class Observers {
 public:
  void add(std::shared_ptr<TrainingObserver> observer);
  // These functions call those of TrainingObserver and StepObserver with the same names.
  void start(const TrainingStart& start);
  void end(const TrainingResult& result);
  void abort(const std::string& why) noexcept;
  bool observes(std::int64_t step) const;
  // Calls f(observer) for each observer, or each StepObserver, that has not ended.
  void each(const std::function<void(TrainingObserver&)>& f);
  void each_step(const std::function<void(StepObserver&)>& f);
  std::vector<ObserverFailure> failures() const;

 private:
  struct Entry {
    std::shared_ptr<TrainingObserver> observer;
    StepObserver* steps = nullptr;  // the observer, if it is a StepObserver
    bool ended = false, told = false;
    std::string error;
  };

  void call(Entry& entry, const std::function<void()>& f);

  std::vector<Entry> entries_;
};

}  // namespace lockstep
