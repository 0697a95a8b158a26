#include "apps/lockstep/options/help.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <utility>
#include <vector>

#include "apps/lockstep/options/option_row.h"
#include "lockstep/base/environment.h"

namespace lockstep::app {
namespace {

const OptionRow* row_of(const CLI::Option& option) {
  return option.get_lnames().empty() ? nullptr : find_option_row("--" + option.get_lnames().front());
}

constexpr std::size_t kLeft = 27;  // width of the column of names

// Returns the kind of a value, without a range, which only error messages need.
std::string value_name(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";  // a flag
  const std::string type = option.get_type_name();
  if (const std::size_t set = type.find('{'); set != std::string::npos) {
    std::string names = type.substr(set + 1, type.rfind('}') - set - 1);
    std::ranges::replace(names, ',', '|');
    constexpr std::size_t kWidest = 50;  // the description lists longer ones
    if (names.size() > kWidest) return "NAME";
    return names;
  }
  if (type.starts_with("FLOAT") || type.starts_with("POWER")) return "X";
  if (type.find("INT") != std::string::npos) return "N";
  if (type.ends_with("DIR")) return "DIR";
  if (type.ends_with("FILE")) return "FILE";
  const std::string name = option.get_name();
  if (const OptionRow* row = row_of(option); row && !row->extras.value.empty()) return row->extras.value;
  if (name == "--json" || name == "--out") return "FILE";
  return option.get_expected_max() > 1 ? "LIST" : "TEXT";
}

// Returns the range of a fraction, such as "0 to 1", because it says what the number means. Empty for other numbers.
std::string fraction(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('['), dash = type.rfind(" - ");
  if (!type.starts_with("FLOAT") || begin == std::string::npos || dash == std::string::npos) return "";
  double high = 0;
  std::from_chars(type.data() + dash + 3, type.data() + type.size(), high);
  if (high > 1) return "";
  return fmt::format("{} to {}", type.substr(begin + 1, dash - begin - 1),
                     type.substr(dash + 3, type.find(']') - dash - 3));
}

}  // namespace

std::string wrapped(std::string_view text, std::size_t width, std::size_t indent) {
  std::string out;
  std::size_t column = indent;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (!out.empty() && column + 1 + word.size() > width) {
      out += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (!out.empty()) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

std::size_t help_width() {
  constexpr std::size_t kLeast = 40, kMost = 100, kPiped = 80;
  std::size_t columns = 0;
  if (const auto given = environment("COLUMNS")) {
    std::from_chars(given->data(), given->data() + given->size(), columns);
  }
  winsize size{};
  if (columns == 0 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  return std::clamp(columns == 0 ? kPiped : columns, kLeast, kMost);
}

void group_options(CLI::App& app) {
  for (CLI::Option* option : app.get_options([](CLI::Option* o) { return o->get_group() == "Options"; })) {
    if (const OptionRow* row = row_of(*option)) option->group(row->group);
  }
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    // Most options of launch have no group.
    if (command->get_name() != "launch") group_options(*command);
  }
}

std::string HelpFormatter::entry(const std::string& left, const std::string& text) const {
  std::string out = "  " + left;
  if (out.size() + 2 > kLeft) {
    out += "\n" + std::string(kLeft, ' ');
  } else {
    out.resize(kLeft, ' ');
  }
  return out + wrapped(text, width_, kLeft) + "\n";
}

std::string HelpFormatter::option(const CLI::Option& option) const {
  std::string left = make_option_name(&option, option.get_positional());
  for (std::size_t comma = 0; (comma = left.find(',', comma)) != std::string::npos; comma += 2)
    left.insert(comma + 1, " ");
  const std::string kind = value_name(option);
  std::string text = option.get_description();
  if (!kind.empty() && !option.get_positional()) left += " " + kind;
  // Inserts the range before the default, which some descriptions have at their end.
  if (const std::string range = fraction(option); !range.empty()) {
    text.insert(text.ends_with(']') ? text.rfind(" [") : text.size(), ", " + range);
  }
  // A list already has brackets.
  if (const std::string& value = option.get_default_str(); !value.empty()) {
    text += value.front() == '[' ? " " + value : fmt::format(" [{}]", value);
  }
  if (option.get_required()) text += " (required)";
  for (const CLI::Option* other : option.get_needs()) {
    if (text.find(other->get_name()) == std::string::npos) text += fmt::format(" (with {})", other->get_name());
  }
  return entry(left, text);
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode /*mode*/) const {
  std::string out = wrapped(app->get_description(), width_, 0) + "\n" + make_usage(app, name);
  const auto add = [&](std::string_view title, const std::vector<const CLI::Option*>& options) {
    if (options.empty()) return;
    out += fmt::format("\n{}:\n", title);
    for (const CLI::Option* o : options) out += option(*o);
  };
  const auto of_group = [&](std::string_view group) {
    return app->get_options(
        [&](const CLI::Option* o) { return o->get_group() == group && !o->get_positional() && !group.empty(); });
  };
  add("Arguments", app->get_options([](const CLI::Option* o) { return o->get_positional(); }));
  std::string_view group;
  for (const OptionRow& row : option_rows()) {
    if (std::exchange(group, row.group) == row.group) continue;
    std::vector<const CLI::Option*> options = of_group(group);
    // Sorts in the order of the rows, which keeps options of one subject together. Options of other commands follow.
    std::ranges::stable_sort(options, {}, [](const CLI::Option* o) {
      const OptionRow* found = row_of(*o);
      return found && !found->group.empty() ? found : option_rows().data() + option_rows().size();
    });
    add(group, options);
  }
  add("Options", of_group("Options"));
  if (const auto commands = app->get_subcommands({}); !commands.empty()) {
    out += "\nCommands:\n";
    for (const CLI::App* command : commands) out += entry(command->get_name(), command->get_description());
  }
  if (const std::string footer = app->get_footer(); !footer.empty()) {
    std::string text = footer;
    std::ranges::replace(text, '\n', ' ');
    out += "\n" + wrapped(text, width_, 0) + "\n";
  }
  return out;
}

}  // namespace lockstep::app
