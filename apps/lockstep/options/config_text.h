// The text of a configuration: the part of TOML that options need.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::app {

struct ConfigEntry {
  std::string table;                // "train" below a line [train]; empty before any such line
  std::string key;                  // "batch-size"
  std::vector<std::string> values;  // without quotes; several from an array
};

// Parses lines of TOML: `key = value`, [table], and comments. A value is a string, a number, true, false, or an array
// of these in one line. Throws UsageError with the file, the line, and what was expected.
std::vector<ConfigEntry> parse_config(std::string_view text, std::string_view file);

// A string as TOML.
std::string toml_string(std::string_view text);

}  // namespace lockstep::app
