// All that the tool knows of an option of `lockstep train`, in one place.
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

// Finds an option's field, in a library's struct that TrainOptions has, or in TrainOptions itself.
template <typename T>
using FieldOf = std::function<T&(TrainOptions&)>;
// One whose values have names.
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
  own_data,  // those but texts: pictures, tables, arrays
  tables,    // the same; open_data() tells whether they are tables or pictures
  own_pictures,
  pictures,  // Fashion-MNIST, too
  texts,     // gpt and lstm
  gpt,
  other_than_texts,
  labels,  // classes and texts
  classes,
};

// What some options have.
struct OptionExtras {
  For only = For::all;
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

  template <typename T>
  bool is() const {
    return std::holds_alternative<FieldOf<T>>(field);
  }
  bool is_flag() const { return is<bool>(); }
  bool is_list() const {
    return is<std::vector<std::string>>() || is<std::vector<double>>() || is<std::vector<std::int64_t>>();
  }
  // --no-shuffle clears its field.
  bool clears() const { return name.starts_with("--no-"); }
  // On any devices.
  bool decides_result() const;
};

// In the order of the help.
const std::vector<OptionRow>& option_rows();
bool fits(For only, const TrainOptions& options);
// Throws UsageError for an option that does not fit. why_not_own: open_own_data()'s.
void check_fits(const OptionRow& row, const TrainOptions& options, const std::string& why_not_own);
// Null if `train` has no option of that name.
const OptionRow* find_option_row(std::string_view name);
// The error's message; that of an OptionError has the options' names for the fields.
std::string message_of(const std::exception& error);
// The option that sets this entry of the recipe, or this field; null if none does.
const OptionRow* find_option_of_entry(const std::string& entry);

}  // namespace lockstep::app
