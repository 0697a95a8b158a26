// Internal: receives signals through a descriptor, without handlers.
#pragma once

#include <signal.h>

#include <optional>
#include <vector>

#include "lockstep/base/file_descriptor.h"

namespace lockstep {

// While the object lives, these signals are blocked in the thread that made it, and take() returns them.
class SignalDescriptor {
 public:
  explicit SignalDescriptor(const std::vector<int>& signals);
  ~SignalDescriptor();
  SignalDescriptor(const SignalDescriptor&) = delete;
  SignalDescriptor& operator=(const SignalDescriptor&) = delete;

  // The descriptor for poll().
  int get() const { return descriptor_.get(); }
  // The next signal, if one has arrived. Does not wait.
  std::optional<int> take();
  // The thread's earlier mask, for child processes.
  const sigset_t& mask_before() const { return before_; }

 private:
  sigset_t before_;
  struct sigaction child_action_before_;
  FileDescriptor descriptor_;
};

}  // namespace lockstep
