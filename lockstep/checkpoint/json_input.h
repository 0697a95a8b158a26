// Internal: reads JSON from outside the process in one pass. Unlike nlohmann's own parser, it refuses nesting that is
// too deep for copies and dump(), several values for one name, NUL bytes, and a byte order mark. It takes time linear
// in the text and memory of at most kMemoryPerJsonByte times the text, and refuses a text too long for the memory that
// is left.
//
//   const auto json = parse_json<nlohmann::json>(text, {.what = "it", .depth = 4});
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {

// Returns the value for error messages: as JSON, which is one line whatever a file contains, and shortened.
std::string excerpt(const nlohmann::json& value);

struct JsonLimits {
  std::string what = "it";  // the text's name in errors
  std::size_t depth = 16;   // of arrays and objects in each other
  // Most names of one object and elements of one array. The outermost object may have more names if `member` is set.
  std::size_t names = std::string::npos, elements = std::string::npos;
};

// Texts such as [[],[],... and {"1":0,... take the most memory.
inline constexpr std::uint64_t kMemoryPerJsonByte = 30;

// Parses the text. Passes each member of the outermost object to `member`, if it is set, and keeps only its name, so
// that the values of a long list are never all in memory. For json and ordered_json.
template <typename Json>
Json parse_json(std::string_view text, const JsonLimits& limits = {},
                const std::function<void(const std::string& name, Json value)>& member = {});
extern template nlohmann::json parse_json(std::string_view, const JsonLimits&,
                                          const std::function<void(const std::string&, nlohmann::json)>&);
extern template nlohmann::ordered_json parse_json(
    std::string_view, const JsonLimits&, const std::function<void(const std::string&, nlohmann::ordered_json)>&);

// Returns nothing if the text is not JSON within the limits, such as a line of a log that a killed process cut.
template <typename Json>
std::optional<Json> find_json(std::string_view text, const JsonLimits& limits = {}) {
  try {
    return parse_json<Json>(text, limits);
  } catch (const nlohmann::json::exception&) {
  } catch (const Error&) {
  }
  return std::nullopt;
}

}  // namespace lockstep
