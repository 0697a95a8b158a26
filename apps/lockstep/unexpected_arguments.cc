#include "unexpected_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::app {
namespace {

// The number of characters to insert, remove, or replace (Levenshtein distance).
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

// The name most similar to `word`, if one is similar enough.
std::string nearest(std::string_view word, const std::vector<std::string>& names) {
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

}  // namespace

std::string unexpected_arguments(const CLI::App& app) {
  const CLI::App* last = &app;
  std::string path;
  while (!last->get_subcommands().empty()) {
    last = last->get_subcommands().front();
    path += last->get_name() + " ";
  }
  const CLI::App& command = *last;
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options({})) {
    for (const std::string& name : option->get_lnames()) {
      if (!option->get_group().empty()) names.push_back("--" + name);
    }
  }
  for (const CLI::App* other : command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(other->get_name());
  }
  const std::vector<std::string> words = command.remaining();
  std::string meant;
  for (std::size_t i = 0; i < words.size() && meant.empty(); ++i) {
    meant = nearest(std::string_view(words[i]).substr(0, words[i].find('=')), names);
  }
  return fmt::format("not expected: {}{} (see lockstep {}--help)", fmt::join(words, " "),
                     meant.empty() ? "" : fmt::format("; did you mean {}?", meant), path);
}

}  // namespace lockstep::app
