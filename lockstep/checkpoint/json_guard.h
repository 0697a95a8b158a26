// Internal: limits for JSON from outside the process. nlohmann's parser accepts any depth, although copies and dump()
// then overflow the stack, and it accepts several values for one name, of which it keeps the last.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {

// For error messages: JSON, so that it stays on one line whatever a file contains, and shortened.
inline std::string excerpt(const nlohmann::json& value) {
  constexpr std::size_t kMost = 120;
  const std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

// A parser callback. Throws an Error that names `what` where an object or array is nested too deep, or where an object
// repeats a name or has too many of them.
class JsonGuard {
 public:
  JsonGuard(std::string what, std::size_t most_depth, std::size_t most_names)
      : what_(std::move(what)), most_names_(most_names), names_(most_depth) {}

  template <typename Json>
  bool operator()(int depth, nlohmann::json::parse_event_t event, const Json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    const auto level = static_cast<std::size_t>(depth);
    if (event == Event::object_start || event == Event::array_start) {
      check(level < names_.size(), "{} is nested more than {} deep", what_, names_.size());
      names_[level].clear();
    } else if (event == Event::key) {
      std::set<std::string>& names = names_[level - 1];
      const auto name = parsed.template get<std::string>();
      check(names.insert(name).second, "{} has {} more than once", what_, excerpt(name));
      check(names.size() <= most_names_, "{} has an object of more than {} names", what_, most_names_);
    }
    return true;
  }

 private:
  std::string what_;
  std::size_t most_names_;
  std::vector<std::set<std::string>> names_;  // of the objects around the current position
};

}  // namespace lockstep
