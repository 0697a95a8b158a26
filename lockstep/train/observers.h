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

// Lives as long as its Trainer, whose calls of train() are each a training of their own. Between two of them, nobody
// observes.
class Observers {
 public:
  // Called at the start of each training. Null: nobody observes it.
  using Make = std::function<std::shared_ptr<TrainingObserver>()>;

  // Observers are called in the order of these calls.
  void add(Make make);
  // These functions call those of TrainingObserver and StepObserver with the same names. start() makes all observers
  // before it calls the first.
  void start(const TrainingStart& start);
  // Returns why observers could not write all of their output.
  std::vector<ObserverFailure> end(const TrainingResult& result);
  void abort(const std::string& why) noexcept;
  bool observes(std::int64_t step) const;
  // Calls f(observer) for each observer, or each StepObserver, that has not ended.
  void each(const std::function<void(TrainingObserver&)>& f);
  void each_step(const std::function<void(StepObserver&)>& f);
  // Leaves what was made for a training, which has ended.
  void drop() noexcept { entries_.clear(); }

 private:
  struct Entry {
    std::shared_ptr<TrainingObserver> observer;
    StepObserver* steps = nullptr;  // the observer, if it is a StepObserver
    bool ended = false, told = false;
    std::string error;
  };

  void call(Entry& entry, const std::function<void()>& f);

  std::vector<Make> makes_;
  std::vector<Entry> entries_;  // of the training in progress
};

}  // namespace lockstep
