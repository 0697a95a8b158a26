// Waits that Ctrl-C ends. The wait runs in a thread of its own, while this one looks for signals.
//
//   wait_for(x);                                   // until x's elements are computed
//   interruptible([] { synchronize(); });          // any wait
//
// Call them with the interpreter lock, which they release. A signal's exception, such as KeyboardInterrupt, is thrown
// as py::error_already_set. `wait` still runs to its end in its thread, so it must capture by value what it uses. It
// does not see this thread's modes, such as no_grad().
#pragma once

#include <functional>

#include "lockstep/autograd/tensor.h"
#include "lockstep/base/interruption.h"

namespace lockstep::python {

void interruptible(std::function<void()> wait);
// Throws the failure of the task that computes x.
void wait_for(const Tensor& x);

// While it exists, a signal ends waits for batches in this thread. Calls `on_signal` before they end.
class SignalScope {
 public:
  explicit SignalScope(std::function<void()> on_signal = {});

 private:
  InterruptionScope scope_;
};

}  // namespace lockstep::python
