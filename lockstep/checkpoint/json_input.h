// Internal: JSON from outside the process, read in one pass. Unlike nlohmann's own parser, it refuses a depth that
// copies and dump() cannot handle, several values for one name, bytes behind a NUL, and a byte order mark. Its time is
// linear in the text, and its memory at most kMemoryPerJsonByte times the text: a text too long for the memory that is
// left is refused.
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

// For error messages: JSON, so that it stays on one line whatever a file contains, and shortened.
std::string excerpt(const nlohmann::json& value);

struct JsonLimits {
  std::string what = "it";  // the text's name in errors
  std::size_t depth = 16;   // of arrays and objects in each other
  // Of one object, and of one array. The outermost object may have more if its members are handed on.
  std::size_t names = std::string::npos, elements = std::string::npos;
};

// [[],[],... and {"1":0,... take the most.
inline constexpr std::uint64_t kMemoryPerJsonByte = 30;

// With `member`: hands the members of the outermost object to it, and forgets them, so that a long list needs no memory
// at once. For json and ordered_json.
template <typename Json>
Json parse_json(std::string_view text, const JsonLimits& limits = {},
                const std::function<void(const std::string& name, Json value)>& member = {});
extern template nlohmann::json parse_json(std::string_view, const JsonLimits&,
                                          const std::function<void(const std::string&, nlohmann::json)>&);
extern template nlohmann::ordered_json parse_json(
    std::string_view, const JsonLimits&, const std::function<void(const std::string&, nlohmann::ordered_json)>&);

// A line of a log, for example, which a killed process may have cut: none if the text is not JSON within the limits.
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
