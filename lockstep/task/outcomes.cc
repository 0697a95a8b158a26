#include "lockstep/task/outcomes.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

namespace lockstep {

Outcomes outcomes_of(const DataSchema& schema, std::size_t most_in_table) {
  if (schema.task == TaskKind::regression) return Outcomes::of_numbers(schema.target_mean, schema.target_stddev);
  return Outcomes(static_cast<std::size_t>(schema.outputs), most_in_table);
}

std::string shortest_text(double value, const DataSchema& schema, std::size_t k) {
  const double mean = schema.target_mean.at(k), stddev = schema.target_stddev.at(k);
  const auto normalized = [&](double x) { return static_cast<float>((x - mean) / stddev); };
  for (int digits = 1; digits < std::numeric_limits<double>::max_digits10; ++digits) {
    const std::string text = fmt::format("{:.{}g}", value, digits);
    double read = 0;
    std::from_chars(text.data(), text.data() + text.size(), read);
    if (normalized(read) == normalized(value)) return fmt::format("{}", read);
  }
  return fmt::format("{}", value);
}

}  // namespace lockstep
