// Internal: a number and a text in one value of a store: `3 rank 3 lost (connection closed)`.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

#include "lockstep/base/environment.h"

namespace lockstep {

struct NumberedText {
  int number = 0;
  std::string text;

  std::string str() const { return fmt::format("{} {}", number, text); }
};

// Throws if the number is not from min to max. The error calls the number `what`.
inline NumberedText parse_numbered_text(std::string_view what, std::string_view value, int min, int max) {
  const std::size_t space = value.find(' ');
  const auto number = static_cast<int>(parse_integer(what, value.substr(0, space), min, max));
  return {number, space == value.npos ? std::string() : std::string(value.substr(space + 1))};
}

}  // namespace lockstep
