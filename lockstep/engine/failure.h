// Failures of tasks: why data is missing, and the errors that waits for the data throw.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "lockstep/base/error.h"

namespace LOCKSTEP_API lockstep {

// Why data is missing: the first task that failed, shared by everything that failed because of it, or a cancellation.
// Lasting data, such as weights, is not missing if the failure only prevented its update: it keeps its former value.
struct Failure {
  // Empty for a cancellation.
  std::string task = {};
  // The task's exception.
  std::exception_ptr cause = {};
  // "relu on cpu:0 compute 0: ...", "cancelled: the run was interrupted"
  std::string message = {};
  // The task's position in the order of pushing. A cancellation has one, too.
  std::int64_t order = 0;
  bool cancelled = false;
};

using FailurePtr = std::shared_ptr<const Failure>;

// Thrown by waits. what() begins with the name of the first task that failed and its lane.
class TaskError : public Error {
 public:
  explicit TaskError(FailurePtr failure) : Error(failure->message), failure_(std::move(failure)) {}
  const Failure& failure() const { return *failure_; }
  const std::string& task() const { return failure_->task; }
  std::exception_ptr cause() const override { return failure_->cause; }

 private:
  FailurePtr failure_;
};

// Thrown by waits for data of a task that Engine::cancel_pending cancelled.
class CancelledError : public TaskError {
 public:
  using TaskError::TaskError;
};

[[noreturn]] inline void throw_failure(FailurePtr failure) {
  if (failure->cancelled) throw CancelledError(std::move(failure));
  throw TaskError(std::move(failure));
}

}  // namespace lockstep
