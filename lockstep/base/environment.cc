#include "lockstep/base/environment.h"

#include <charconv>
#include <cstdlib>

#include "lockstep/base/error.h"

namespace lockstep {

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::optional<std::string>(value) : std::nullopt;
}

std::int64_t parse_integer(std::string_view what, std::string_view text, std::int64_t min, std::int64_t max) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, value);
  check(error == std::errc() && parsed == end && value >= min && value <= max,
        "{} is {:?}, expected an integer from {} to {}", what, text, min, max);
  return value;
}

std::optional<std::int64_t> environment_integer(const char* name, std::int64_t min, std::int64_t max) {
  const std::optional<std::string> text = environment(name);
  return text ? std::optional(parse_integer(name, *text, min, max)) : std::nullopt;
}

}  // namespace lockstep
