// Internal: observes the operations that a thread launches.
#pragma once

#include <span>
#include <string_view>

#include "lockstep/tensor/array.h"

namespace lockstep::ops {

// While it lives, this thread's operations report to it, unless an inner observer hides it. Under an ObserverPause, it
// may launch operations of its own, which read arrays as they are at that point in the order of tasks.
class LaunchObserver {
 public:
  LaunchObserver();
  virtual ~LaunchObserver();
  LaunchObserver(const LaunchObserver&) = delete;
  LaunchObserver& operator=(const LaunchObserver&) = delete;
  // Null if this thread's operations are not observed.
  static LaunchObserver* current();

  // The operation is about to be launched, or has been. Undefined arrays stand for omitted ones.
  virtual void launching(std::string_view name, std::span<const Array> reads, std::span<const Array> writes) = 0;
  virtual void launched(std::string_view name, std::span<const Array> writes) = 0;

 private:
  LaunchObserver* previous_;
};

// While it lives, operations of this thread are not reported: for operations that an observer launches itself.
class ObserverPause {
 public:
  ObserverPause();
  ~ObserverPause();
  ObserverPause(const ObserverPause&) = delete;
  ObserverPause& operator=(const ObserverPause&) = delete;

 private:
  LaunchObserver* paused_;
};

}  // namespace lockstep::ops
