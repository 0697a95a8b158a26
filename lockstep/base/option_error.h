// An error about the options of a call. A program that has other names for the fields, such as the options of a command
// line, can put these names into the message.
//
//   catch (const OptionError& error) {
//     fmt::print(stderr, "{}\n", error.with_names([](const std::string& field) { return "--" + field; }));
//   }
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace LOCKSTEP_API lockstep {

class OptionError : public Error {
 public:
  // fields: names of the fields that the message may mention, each as a word or in backquotes.
  OptionError(const std::string& message, std::vector<std::string> fields)
      : Error(message), fields_(std::move(fields)) {}

  const std::vector<std::string>& fields() const { return fields_; }
  // Returns the message with other names for the fields: "val_split = 0.1" becomes "--val-split 0.1".
  std::string with_names(const std::function<std::string(const std::string& field)>& name_of) const;

 private:
  std::vector<std::string> fields_;
};

// Like fail() and check(), but they throw OptionError.
template <typename... Args>
[[noreturn]] void fail_option(std::vector<std::string> fields, fmt::format_string<Args...> message, Args&&... args) {
  throw OptionError(fmt::format(message, std::forward<Args>(args)...), std::move(fields));
}
template <typename... Args>
void check_option(bool ok, const char* field, fmt::format_string<Args...> message, Args&&... args) {
  if (!ok) [[unlikely]]
    fail_option({field}, message, std::forward<Args>(args)...);
}

}  // namespace lockstep
