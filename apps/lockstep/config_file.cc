#include "config_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "command_line.h"
#include "lockstep/base/file.h"
#include "option_row.h"
#include "unexpected_arguments.h"

namespace lockstep::app {
namespace {

constexpr std::size_t kLargestConfig = std::size_t{1} << 20;

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

struct GivenCommand {
  CLI::App* app;
  std::string name;   // "bench train"
  std::size_t place;  // of the first word behind its name
};

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  return names;
}

CLI::App* command_named(CLI::App& app, const std::string& name) {
  const auto found = app.get_subcommands([&](const CLI::App* command) { return command->get_name() == name; });
  return found.empty() ? nullptr : found.front();
}

bool has_word(const std::vector<std::string>& words, std::size_t end, const std::string& name) {
  return std::any_of(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(end), [&](const std::string& word) {
    return name.starts_with("--") ? word.substr(0, word.find('=')) == name : word.starts_with(name);
  });
}

std::optional<std::string> config_of(const std::vector<std::string>& words, std::size_t end) {
  std::optional<std::string> found;
  for (std::size_t i = 0; i < end; ++i) {
    const bool joined = words[i].starts_with("--config=");
    if (!joined && (words[i] != "--config" || i + 1 == end)) continue;
    if (found) throw UsageError("--config is given twice, expected one file");
    found = joined ? words[i].substr(words[i].find('=') + 1) : words[i + 1];
  }
  return found;
}

// Options of which only one may be given.
bool is_replaced(const std::string& name, const std::vector<std::string>& words, std::size_t end) {
  return (name == "--num-devices" && has_word(words, end, "--devices")) ||
         (name == "--devices" && has_word(words, end, "--num-devices"));
}

// Whether the option says where to write. A file of somebody else must not decide that. `option` is null if the command
// passes it on.
bool names_output(const std::string& name, const CLI::Option* option) {
  const OptionRow* const row = find_option_row(name);
  const std::string group = option != nullptr ? option->get_group() : row->group;
  const std::string value = row != nullptr ? row->extras.value : option->get_type_name();
  return name == "--save" || (group == "Output" && (value == "FILE" || value == "DIR"));
}

// `swept`: a list is one value, whose commas would part it in two.
std::string flag_or_value(const ConfigEntry& entry, bool flag, bool list, bool swept, const std::string& file) {
  const auto refuse = [&](std::string_view expected) {
    throw UsageError(fmt::format("{}: {} = {}, expected {}", file, entry.key, fmt::join(entry.values, ", "), expected));
  };
  if (flag) {
    const std::string value = entry.values.size() == 1 ? entry.values[0] : "";
    if (value != "true" && value != "false") refuse("true or false");
    return value == "true" ? "--" + entry.key : "";
  }
  if (entry.values.empty() || (entry.values.size() > 1 && !list)) refuse("one value");
  // The parse would take the next word.
  if (std::ranges::find(entry.values, "") != entry.values.end()) refuse("a value that is not empty");
  return fmt::format("--{}={}{}", entry.key, fmt::join(entry.values, ","), swept && list ? ";" : "");
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

void add_config_option(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    // with_config() reads the file before the parse.
    command
        ->add_option("--config",
                     "Take options from this TOML file, such as the run.toml of --save: batch-size = 64. "
                     "Options given here count instead")
        ->check(CLI::ExistingFile)
        ->type_name("FILE");
    // with_config() looks for it, too.
    command->add_flag_function(
        "--allow-output", [](std::int64_t) {},
        "Let the file of --config say where to write, as by save, log, or report");
    add_config_option(*command);
  }
}

Arguments with_config(CLI::App& app, std::vector<std::string> words) {
  const auto end = static_cast<std::size_t>(std::ranges::find(words, "--") - words.begin());
  const std::optional<std::string> file = config_of(words, end);
  std::error_code unknown;
  // The parse reports a file that does not exist.
  if (!file || !std::filesystem::is_regular_file(*file, unknown)) return {std::move(words)};
  std::vector<GivenCommand> commands;
  for (std::size_t i = 0; i < end; ++i) {
    CLI::App& current = commands.empty() ? app : *commands.back().app;
    CLI::App* const next = command_named(current, words[i]);
    if (next == nullptr) continue;
    commands.push_back({next, (commands.empty() ? "" : commands.back().name + " ") + words[i], i + 1});
  }
  if (commands.empty()) return {std::move(words)};  // an error of the parse

  Arguments all{.file = *file};
  std::vector<std::pair<std::size_t, std::string>> inserted;
  std::vector<std::string> outputs;
  for (const ConfigEntry& entry : parse_config(read_file(*file, kLargestConfig), *file)) {
    if (!entry.table.empty() && entry.table != commands[0].name) {
      if (command_named(app, entry.table) != nullptr) continue;  // for another command
      throw UsageError(fmt::format("{}: unknown table [{}], expected the name of a command", *file, entry.table));
    }
    const std::string name = "--" + entry.key;
    const GivenCommand* owner = nullptr;
    const CLI::Option* option = nullptr;
    std::vector<std::string> known;
    for (const GivenCommand& command : commands) {
      for (const CLI::Option* o : command.app->get_options({})) {
        for (const std::string& lname : o->get_lnames()) {
          if (lname == "config" || lname == "allow-output" || lname == "help" || o->get_group().empty()) continue;
          known.push_back(lname);
          if (lname == entry.key) {
            owner = &command;
            option = o;
          }
        }
      }
    }
    // These commands pass options of `train` on.
    const bool passes = commands[0].name == "verify" || commands[0].name == "sweep";
    const OptionRow* row = option == nullptr && passes ? find_option_row(name) : nullptr;
    if (option == nullptr && (row == nullptr || row->group.empty())) {
      const std::string meant = nearest_name(entry.key, known);
      throw UsageError(fmt::format("{}: unknown key {}: lockstep {} has no such option{}", *file, entry.key,
                                   commands.back().name,
                                   meant.empty() ? "" : fmt::format("; did you mean {}?", meant)));
    }
    const std::vector<std::string> names = option != nullptr ? names_of(*option) : std::vector{name};
    if (std::ranges::any_of(names, [&](const std::string& n) { return has_word(words, end, n); })) continue;
    if (is_replaced(name, words, end)) continue;
    const bool flag = option != nullptr ? option->get_items_expected_max() == 0 : row->is_flag();
    const bool list = option != nullptr ? option->get_delimiter() != '\0'
                                        : std::holds_alternative<std::vector<std::string> TrainOptions::*>(row->field);
    const bool swept = option == nullptr && commands[0].name == "sweep";
    const std::string word = flag_or_value(entry, flag, list, swept, *file);
    if (word.empty()) continue;
    if (names_output(name, option)) outputs.push_back(entry.key);
    all.from_file.push_back(name);
    inserted.emplace_back(owner != nullptr ? owner->place : end, word);
  }
  if (!outputs.empty() && !has_word(words, end, "--allow-output")) {
    throw UsageError(
        fmt::format("{}: {} would say where to write: expected --allow-output, or --{} on the command line", *file,
                    fmt::join(outputs, ", "), fmt::join(outputs, ", --")));
  }
  for (std::size_t i = 0; i <= words.size(); ++i) {
    for (const auto& [place, word] : inserted) {
      if (place == i) all.words.push_back(word);
    }
    if (i < words.size()) all.words.push_back(words[i]);
  }
  return all;
}

}  // namespace lockstep::app
