// What became of data whose task failed.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep {

// The first task that failed, shared by everything that failed because of it.
struct Failure {
  std::string task = {};
  // What the task threw.
  std::exception_ptr cause = {};
  // "relu on cpu:0 compute 0: ..."
  std::string message = {};
  // The task's place in the order of pushing.
  std::int64_t order = 0;
};

// Thrown by waits. what() begins with the name of the first task that failed and its lane.
class TaskError : public Error {
 public:
  explicit TaskError(std::shared_ptr<const Failure> failure)
      : Error(failure->message), failure_(std::move(failure)) {}
  const Failure& failure() const { return *failure_; }
  const std::string& task() const { return failure_->task; }

 private:
  std::shared_ptr<const Failure> failure_;
};

}  // namespace lockstep
