// Internal: strings and integers from environment variables. A typo is an error, not a default.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// Value of the variable, which may be an empty string; nullopt if it is not set.
std::optional<std::string> environment(const char* name);

// Parses all of `text` as a decimal integer from min to max. The error calls it `what`: `LOCAL_RANK is "two", expected
// an integer from 0 to 7`.
std::int64_t parse_integer(std::string_view what, std::string_view text, std::int64_t min, std::int64_t max);

// Parses the value of the variable; nullopt if it is not set.
std::optional<std::int64_t> environment_integer(const char* name, std::int64_t min, std::int64_t max);

}  // namespace lockstep
