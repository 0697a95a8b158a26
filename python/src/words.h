// Converts PyTorch's words to the library's enumerations: 'mean', 'reflect', 'bilinear'.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::python {

// Returns the value of a word. If it is unknown, throws with all known words.
template <typename T>
T value_of(std::string_view what, std::string_view word, std::initializer_list<std::pair<const char*, T>> known) {
  for (const auto& [name, value] : known)
    if (word == name) return value;
  std::string names;
  for (const auto& [name, value] : known) names += fmt::format("{}'{}'", names.empty() ? "" : ", ", name);
  fail("{} is '{}', expected one of: {}", what, word, names);
}

}  // namespace lockstep::python
