#include "apps/lockstep/options/config_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "apps/lockstep/options/option_row.h"
#include "apps/lockstep/options/unexpected_arguments.h"
#include "lockstep/base/file.h"

namespace lockstep::app {
namespace {

struct GivenCommand {
  CLI::App* app;
  std::string name;   // "bench train"
  std::size_t place;  // index of the first word after its name
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

std::size_t end_of_options(const std::vector<std::string>& words) {
  return static_cast<std::size_t>(std::ranges::find(words, "--") - words.begin());
}

// Returns whether an option among the words excludes this one of the file.
bool is_replaced(const std::string& name, const std::vector<std::string>& words, std::size_t end) {
  return (name == "--num-devices" && has_word(words, end, "--devices")) ||
         (name == "--devices" && has_word(words, end, "--num-devices"));
}

// Returns whether the option says where to write, which a stranger's file must not decide. `option` is null if the
// command passes it on.
bool names_output(const std::string& name, const CLI::Option* option) {
  const OptionRow* const row = find_option_row(name);
  const std::string group = option != nullptr ? option->get_group() : row->group;
  const std::string value = row != nullptr ? row->extras.value : option->get_type_name();
  return name == "--save" || (group == "Output" && (value == "FILE" || value == "DIR"));
}

// `swept`: a list is one value of a sweep, so a semicolon marks that its commas do not separate values.
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
  // The parser would take the next word as the value.
  if (std::ranges::find(entry.values, "") != entry.values.end()) refuse("a value that is not empty");
  return fmt::format("--{}={}{}", entry.key, fmt::join(entry.values, ","), swept && list ? ";" : "");
}

}  // namespace

void add_config_option(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    // The parser ignores the value, because with_config() reads the file before.
    command
        ->add_option("--config",
                     "Take options from this TOML file, such as the run.toml of --save: batch-size = 64. "
                     "Options given here count instead")
        ->check(CLI::ExistingFile)
        ->type_name("FILE");
    // The parser ignores the flag: with_config() looks for it.
    command->add_flag_function(
        "--allow-output", [](std::int64_t) {},
        "Let the file of --config say where to write, as by save, log, or report");
    add_config_option(*command);
  }
}

Arguments with_config(CLI::App& app, std::vector<std::string> words) {
  const std::optional<std::string> file = config_of(words, end_of_options(words));
  std::error_code unknown;
  // The parser reports a file that does not exist.
  if (!file || !std::filesystem::is_regular_file(*file, unknown)) return {std::move(words)};
  const std::vector<ConfigEntry> entries = parse_config(read_file(*file, kLargestConfig), *file);
  return with_entries(app, std::move(words), entries, *file);
}

Arguments with_entries(CLI::App& app, std::vector<std::string> words, const std::vector<ConfigEntry>& entries,
                       const std::string& file) {
  const std::size_t end = end_of_options(words);
  std::vector<GivenCommand> commands;
  for (std::size_t i = 0; i < end; ++i) {
    CLI::App& current = commands.empty() ? app : *commands.back().app;
    CLI::App* const next = command_named(current, words[i]);
    if (next == nullptr) continue;
    commands.push_back({next, (commands.empty() ? "" : commands.back().name + " ") + words[i], i + 1});
  }
  if (commands.empty()) return {std::move(words)};  // the parser reports the error

  Arguments all{.file = file};
  std::vector<std::pair<std::size_t, std::string>> inserted;
  std::vector<std::string> outputs;
  for (const ConfigEntry& entry : entries) {
    if (!entry.table.empty() && entry.table != commands[0].name) {
      if (command_named(app, entry.table) != nullptr) continue;  // for another command
      throw UsageError(fmt::format("{}: unknown table [{}], expected the name of a command", file, entry.table));
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
    // These commands pass options on to `train`.
    const bool passes = commands[0].name == "verify" || commands[0].name == "sweep";
    const OptionRow* row = option == nullptr && passes ? find_option_row(name) : nullptr;
    if (option == nullptr && (row == nullptr || row->group.empty())) {
      const std::string meant = nearest_name(entry.key, known);
      throw UsageError(fmt::format("{}: unknown key {}: lockstep {} has no such option{}", file, entry.key,
                                   commands.back().name,
                                   meant.empty() ? "" : fmt::format("; did you mean {}?", meant)));
    }
    const std::vector<std::string> names = option != nullptr ? names_of(*option) : std::vector{name};
    if (std::ranges::any_of(names, [&](const std::string& n) { return has_word(words, end, n); })) continue;
    if (is_replaced(name, words, end)) continue;
    const bool flag = option != nullptr ? option->get_items_expected_max() == 0 : row->is_flag();
    const bool list = option != nullptr ? option->get_delimiter() != '\0' : row->is_list();
    const bool swept = option == nullptr && commands[0].name == "sweep";
    const std::string word = flag_or_value(entry, flag, list, swept, file);
    if (word.empty()) continue;
    if (names_output(name, option)) outputs.push_back(entry.key);
    all.from_file.push_back(name);
    inserted.emplace_back(owner != nullptr ? owner->place : end, word);
  }
  if (!outputs.empty() && !has_word(words, end, "--allow-output")) {
    throw UsageError(
        fmt::format("{}: {} would say where to write: expected --allow-output, or --{} on the command line", file,
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
