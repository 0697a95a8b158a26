// Errors and checks. Every error that Lockstep reports is a lockstep::Error. Its message names the operation, what was
// found, and what was expected: `conv2d: input has 3 channels, weight expects 4`.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// fail() and check() call this: formatting in one place keeps their callers small.
[[noreturn]] void throw_error(fmt::string_view message, fmt::format_args args);

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) {
  throw_error(message, fmt::make_format_args(args...));
}

// Throws Error unless `ok`. The arguments are always evaluated but formatted only on failure, so pass a tensor or a
// shape, not its text.
template <typename... Args>
void check(bool ok, fmt::format_string<Args...> message, Args&&... args) {
  if (!ok) [[unlikely]]
    throw_error(message, fmt::make_format_args(args...));
}

// Why data is missing: the first task that failed, shared by everything that failed because of it, or a cancellation.
// Lasting data that the failure kept from being updated, such as weights, is not missing: it has its former value.
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

// Thrown for every failure of communication. Names the lost rank, if one is known, and the operation that waited for
// it: `rank 1 lost (connection closed) during all-reduce of bucket 3, step 17`.
class CommError : public Error {
 public:
  CommError(const std::string& message, int lost_rank) : Error(message), lost_rank_(lost_rank) {}
  // -1 if unknown.
  int lost_rank() const { return lost_rank_; }

 private:
  int lost_rank_;
};

// Prints x.describe(), or else x.str().
template <typename T>
struct TextFormatter {
  constexpr auto parse(auto& context) { return context.begin(); }
  auto format(const T& x, auto& context) const {
    std::string text;
    if constexpr (requires { x.describe(); }) {
      text = x.describe();
    } else {
      text = x.str();
    }
    return std::copy(text.begin(), text.end(), context.out());
  }
};

template <typename T>
concept HasText = requires(const T& x) {
  { x.describe() } -> std::same_as<std::string>;
}
|| requires(const T& x) {
  { x.str() } -> std::same_as<std::string>;
};

}  // namespace lockstep

// Excludes ranges: fmt formats them already, and a second formatter would be ambiguous.
template <lockstep::HasText T>
requires(!requires(const T& x) { x.begin(); }) struct fmt::formatter<T> : lockstep::TextFormatter<T> {
};
