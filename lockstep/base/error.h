// Errors and checks. Every error that Lockstep reports is a lockstep::Error whose message names the
// operation, what was found and what was expected: `conv2d: input has 3 channels, weight expects 4`.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <utility>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) {
  throw Error(fmt::format(message, std::forward<Args>(args)...));
}

// Throws Error unless `ok`. The arguments are evaluated always, formatted only on failure.
template <typename... Args>
void check(bool ok, fmt::format_string<Args...> message, Args&&... args) {
  if (!ok) [[unlikely]] throw Error(fmt::format(message, std::forward<Args>(args)...));
}

}  // namespace lockstep
