// All that the tool knows of an option of `lockstep train`, in one place.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "apps/lockstep/options/train_options.h"

namespace lockstep::app {

template <typename... T>
using AnyFieldOf = std::variant<T TrainOptions::*...>;
using OptionField = AnyFieldOf<bool, int, std::int64_t, std::uint64_t, double, std::string, std::optional<double>,
                               std::optional<std::int64_t>, std::vector<std::string>>;

// What some options have.
struct OptionExtras {
  std::optional<CLI::Validator> check = {};
  std::string needs = "";           // the option without which this one is an error
  std::string language_model = "";  // the default of gpt and lstm, if they have their own
  std::string lstm = "";            // the default of lstm alone; only gpt and lstm have the option
  std::string value = "";           // the kind of value in the help, if the check does not tell
  std::string entry = "";           // in the recipe, if its name is not the option's
  std::string refused = "";         // why `verify` cannot pass it on; {} is the name
};

struct OptionRow {
  std::string name;   // "--lr"
  OptionField field;  // holds the default
  std::string help;   // the default follows, unless the help ends with one in words, as in "[all]"
  OptionExtras extras = {};
  std::string group = "";  // in the help; empty: hidden

  bool is_flag() const { return std::holds_alternative<bool TrainOptions::*>(field); }
};

// In the order of the help.
const std::vector<OptionRow>& option_rows();
// Null if `train` has no option of that name.
const OptionRow* find_option_row(std::string_view name);
// An error of the library with the options' names for the fields that it names: "skip_broken leaves such rows out"
// becomes "--skip-broken leaves such rows out".
std::string with_option_names(std::string text);
// The option that sets this entry of the recipe; null if none does.
const OptionRow* find_option_of_entry(const std::string& entry);

}  // namespace lockstep::app
