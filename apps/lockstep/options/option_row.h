// All that the tool knows about each option of `lockstep train`, in one place.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "apps/lockstep/options/train_options.h"

namespace lockstep::app {

// Returns a reference to an option's field, in TrainOptions or in a library's struct inside it.
template <typename T>
using FieldOf = std::function<T&(TrainOptions&)>;
// A field whose values have names.
struct NamedField {
  std::function<std::string(TrainOptions&)> name;  // empty: not set
  std::function<void(TrainOptions&, const std::string& name)> set;
};
template <typename... T>
using AnyFieldOf = std::variant<NamedField, FieldOf<T>...>;
using OptionField =
    AnyFieldOf<bool, int, std::int64_t, std::uint64_t, double, std::string, std::optional<double>,
               std::optional<std::int64_t>, std::vector<std::string>, std::vector<double>, std::vector<std::int64_t>>;

// The data and models that an option is for.
enum class For : std::uint8_t {
  all,
  files,     // data that the user brings
  own_data,  // pictures, tables, arrays that the user brings, not texts
  tables,    // checked as own_data; open_data() rejects other formats
  own_pictures,
  pictures,  // Fashion-MNIST, too
  texts,     // gpt and lstm
  gpt,
  other_than_texts,
  labels,  // classes and texts
  classes,
};

// Properties that only some options have.
struct OptionExtras {
  For only = For::all;
  std::optional<CLI::Validator> check = {};
  std::string needs = "";           // the option without which this one is an error
  std::string language_model = "";  // the default of gpt and lstm, if they have their own
  std::string lstm = "";            // the default of lstm alone; only gpt and lstm have the option
  std::string value = "";           // the kind of value in the help, if the check does not tell
  std::string entry = "";           // name in the recipe, if it is not the option's
  std::string refused = "";         // why `verify` cannot pass it on; {} stands for the name
};

struct OptionRow {
  std::string name;   // "--lr"
  OptionField field;  // its initial value is the default
  std::string help;   // the default follows, unless the help ends with one in words, as in "[all]"
  OptionExtras extras = {};
  std::string group = "";  // in the help; empty: hidden

  template <typename T>
  bool is() const {
    return std::holds_alternative<FieldOf<T>>(field);
  }
  bool is_flag() const { return is<bool>(); }
  bool is_list() const {
    return is<std::vector<std::string>>() || is<std::vector<double>>() || is<std::vector<std::int64_t>>();
  }
  // Returns whether the option clears its field, as --no-shuffle does.
  bool clears() const { return name.starts_with("--no-"); }
  // Returns whether the option decides the result, whatever the devices are.
  bool decides_result() const;
};

// The options in the order of the help.
const std::vector<OptionRow>& option_rows();
bool fits(For only, const TrainOptions& options);
// Throws UsageError for an option that does not fit. `why_not_own`: the result of open_own_data().
void check_fits(const OptionRow& row, const TrainOptions& options, const std::string& why_not_own);
// Returns null if `train` has no option of that name.
const OptionRow* find_option_row(std::string_view name);
// Returns the message of an error, with options instead of fields if it is an OptionError.
std::string message_of(const std::exception& error);
// Returns the option that sets this entry of the recipe, or this field; null if there is none.
const OptionRow* find_option_of_entry(const std::string& entry);

}  // namespace lockstep::app
