// Internal: observes the outputs of all modules of a model.
#pragma once

#include <functional>

#include "lockstep/nn/module.h"

namespace lockstep {

// While it lives, the modules that this thread calls report their outputs to it. Only the latest observer gets them.
class OutputObserver {
 public:
  using Report = std::function<void(const Module& module, const Tensor& output)>;
  explicit OutputObserver(Report report);
  ~OutputObserver();
  OutputObserver(const OutputObserver&) = delete;
  OutputObserver& operator=(const OutputObserver&) = delete;

  // Module::operator() calls this. A module with another kind of call must call it itself. Does nothing without an
  // observer.
  static void report(const Module& module, const Tensor& output);
  static Tensor reported(const Module& module, Tensor output) {
    report(module, output);
    return output;
  }
  // True if this thread has an observer, which expects every module's own output.
  static bool observes();

 private:
  Report report_;
  OutputObserver* previous_;
};

}  // namespace lockstep
