// Parses the text of a configuration: the part of TOML that options need, and the options of run.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::app {

struct ConfigEntry {
  std::string table;                // "train" below a line [train]; empty before any such line
  std::string key;                  // "batch-size"
  std::vector<std::string> values;  // without quotes; an array can have several
};

// Parses lines of TOML: `key = value`, [table], and comments. A value is a string, a number, true, false, or an array
// of these in one line. Throws UsageError with the file, the line, and what was expected.
std::vector<ConfigEntry> parse_config(std::string_view text, std::string_view file);

// The same for a JSON object of such values, without tables: {"batch-size": 64}. `text` may be empty.
std::vector<ConfigEntry> parse_options(const std::string& text);

// Returns a value of such an object as TOML.
std::string toml_value(const nlohmann::ordered_json& value);

}  // namespace lockstep::app
