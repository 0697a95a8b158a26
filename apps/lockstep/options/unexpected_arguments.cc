#include "apps/lockstep/options/unexpected_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::app {
namespace {

// Returns the number of characters to insert, remove, or replace (Levenshtein distance).
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);  // distances from the first i characters of a to the first j of b
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(std::string_view word, const std::vector<std::string>& names) {
  std::string best;
  std::size_t least = 3;
  for (const std::string& name : names) {
    if (const std::size_t distance = edit_distance(word, name); distance < least) {
      least = distance;
      best = name;
    }
  }
  return best;
}

std::string unexpected_arguments(const CLI::App& app) {
  // Finds the outermost command with unexpected words, because CLI11 does not pass them on.
  const CLI::App* found = &app;
  std::string path;
  while (found->remaining_size() == 0 && !found->get_subcommands().empty()) {
    found = found->get_subcommands().front();
    path += found->get_name() + " ";
  }
  const CLI::App& command = *found;
  const auto inner = command.get_subcommands();
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options({})) {
    for (const std::string& name : option->get_lnames()) {
      if (!option->get_group().empty()) names.push_back("--" + name);
    }
  }
  if (inner.empty()) {
    for (const CLI::App* other : command.get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(other->get_name());
    }
  }
  const std::vector<std::string> words = command.remaining();
  std::string meant;
  for (std::size_t i = 0; i < words.size() && meant.empty(); ++i) {
    meant = nearest_name(std::string_view(words[i]).substr(0, words[i].find('=')), names);
  }
  const std::string where = inner.empty() ? "" : fmt::format(" before {}", inner.front()->get_name());
  return fmt::format("not expected{}: {}{} (see lockstep {}--help)", where, fmt::join(words, " "),
                     meant.empty() ? "" : fmt::format("; did you mean {}?", meant), path);
}

}  // namespace lockstep::app
