// Errors and checks. Every error that Lockstep reports is a lockstep::Error. Its message names the operation, what was
// found, and what was expected: `conv2d: input has 3 channels, weight expects 4`.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <concepts>
#include <exception>
#include <stdexcept>
#include <string>

#include "lockstep/base/export.h"

namespace LOCKSTEP_API lockstep {

class Error : public std::runtime_error {
 public:
  // Escapes control characters, because messages quote the contents of files, and programs print messages.
  explicit Error(const std::string& message);
  // The exception that this error reports, if it wraps another one; otherwise null.
  virtual std::exception_ptr cause() const { return nullptr; }
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
