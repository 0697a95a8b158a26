#include "apps/lockstep/options/config_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "apps/lockstep/options/usage_error.h"
#include "lockstep/checkpoint/json_input.h"
#include "lockstep/checkpoint/json_text.h"

namespace lockstep::app {
namespace {

// One line of a configuration.
class ConfigLine {
 public:
  ConfigLine(std::string_view text, std::string where) : text_(text), where_(std::move(where)) { skip_spaces(); }

  bool at_end() const { return text_.empty() || text_.front() == '#'; }
  bool take(char c) {
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    skip_spaces();
    return true;
  }
  std::string bare(std::string_view what) {
    const std::size_t end = std::min(text_.find_first_of(" \t=,[]#\"'"), text_.size());
    if (end == 0) expected(what);
    return cut(end);
  }
  std::string value() {
    if (text_.empty() || (text_.front() != '"' && text_.front() != '\'')) return bare("a value");
    const char quote = text_.front();
    std::string out;
    for (std::size_t i = 1; i < text_.size(); ++i) {
      if (text_[i] == quote) {
        cut(i + 1);
        return out;
      }
      if (quote == '"' && text_[i] == '\\') {
        const char escaped = i + 1 < text_.size() ? text_[++i] : ' ';
        const std::size_t known = std::string_view("\"\\nt").find(escaped);
        if (known == std::string_view::npos) expected("one of the escapes \\\" \\\\ \\n \\t");
        out += "\"\\\n\t"[known];
      } else {
        out += text_[i];
      }
    }
    expected(fmt::format("a closing {}", quote));
  }
  std::vector<std::string> values() {
    if (!take('[')) return {value()};
    std::vector<std::string> all;
    while (!take(']')) {
      all.push_back(value());
      if (take(']')) break;
      if (!take(',')) expected("a comma or ]");
    }
    return all;
  }
  void end() {
    if (!at_end()) expected("the end of the line");
  }
  [[noreturn]] void expected(std::string_view what) const {
    throw UsageError(fmt::format("{}: found {}, expected {}", where_,
                                 text_.empty() ? "the end of the line" : fmt::format("\"{}\"", text_), what));
  }

 private:
  std::string cut(std::size_t count) {
    std::string out(text_.substr(0, count));
    text_.remove_prefix(count);
    skip_spaces();
    return out;
  }
  void skip_spaces() { text_.remove_prefix(std::min(text_.find_first_not_of(" \t\r"), text_.size())); }

  std::string_view text_;
  std::string where_;
};

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const std::size_t escape = std::string_view("\"\\\n\t").find(c);
    if (escape == std::string_view::npos) {
      out += c;
    } else {
      out += '\\';
      out += "\"\\nt"[escape];
    }
  }
  return out + '"';
}

}  // namespace

std::vector<ConfigEntry> parse_config(std::string_view text, std::string_view file) {
  std::vector<ConfigEntry> entries;
  std::set<std::pair<std::string, std::string>> seen;
  std::string table;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string where = fmt::format("{}:{}", file, number);
    ConfigLine line(text.substr(0, end), where);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.at_end()) continue;
    if (line.take('[')) {
      table = line.bare("the name of a table");
      if (!line.take(']')) line.expected("]");
    } else {
      std::string key = line.bare("key = value");
      if (!line.take('=')) line.expected("=");
      entries.push_back({table, std::move(key), line.values()});
      if (!seen.emplace(table, entries.back().key).second) {
        throw UsageError(fmt::format("{}: {} is given twice", where, entries.back().key));
      }
    }
    line.end();
  }
  return entries;
}

std::vector<ConfigEntry> parse_options(const std::string& text) {
  std::vector<ConfigEntry> entries;
  if (text.empty()) return entries;
  const auto text_of = [](const nlohmann::json& value) {
    return value.is_string() ? from_json_text(value.get<std::string>()) : value.dump();
  };
  const auto options = find_json<nlohmann::json>(text);
  check(options && options->is_object(), "the options are no JSON object");
  for (const auto& [name, value] : options->items()) {
    ConfigEntry& entry = entries.emplace_back(ConfigEntry{.table = "", .key = name, .values = {}});
    if (!value.is_array()) entry.values.push_back(text_of(value));
    for (std::size_t i = 0; value.is_array() && i < value.size(); ++i) entry.values.push_back(text_of(value[i]));
  }
  return entries;
}

std::string toml_value(const nlohmann::ordered_json& value) {
  if (value.is_string()) return toml_string(from_json_text(value.get<std::string>()));
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  if (!value.is_array()) return value.dump();
  std::vector<std::string> values;
  for (const auto& one : value) values.push_back(toml_value(one));
  return fmt::format("[{}]", fmt::join(values, ", "));
}

}  // namespace lockstep::app
