#include "lockstep/train/plot_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

// Returns the smallest of 1, 2, and 5 times a power of ten that is at least `least`.
double round_step(double least) {
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

}  // namespace

std::vector<double> PlotAxis::ticks() const {
  constexpr double kSlack = 1e-6;  // in steps, because low / step is rarely a whole number to the last bit
  std::vector<double> ticks;
  const double last = std::floor(high / step + kSlack);
  for (double i = std::ceil(low / step - kSlack); i <= last; ++i) ticks.push_back(i * step);
  return ticks;
}

std::string PlotAxis::label(double tick) const {
  if (tick == 0) return "0";
  if (step < 1e-4 || std::max(std::abs(low), std::abs(high)) >= 1e6) return fmt::format("{:.3g}", tick);
  const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
  return fmt::format("{:.{}f}", tick, decimals);
}

std::string plain_number(double value, int digits) {
  const double size = std::abs(value);
  const bool whole = size >= std::pow(10.0, digits) && size < 1e9;
  return whole ? fmt::format("{:.0f}", value) : fmt::format("{:.{}g}", value, digits);
}

PlotAxis round_axis(double low, double high, int intervals) {
  // The last digits of a constant, or nearly constant, series mean nothing, so the axis shows where the series lies.
  const double magnitude = std::max(std::abs(low), std::abs(high));
  if (high - low <= 1e-3 * magnitude || magnitude == 0) {
    const double margin = magnitude == 0 ? 1 : 0.05 * magnitude;
    low -= margin;
    high += margin;
  }
  const double step = round_step((high - low) / intervals);
  return {std::floor(low / step + 1e-6) * step, std::ceil(high / step - 1e-6) * step, step};
}

PlotAxis count_axis(int first, int last, int most) {
  if (last <= first) return {first - 0.5, first + 0.5, 1};
  return {static_cast<double>(first), static_cast<double>(last),
          std::max(1.0, round_step(static_cast<double>(last - first) / most))};
}

}  // namespace lockstep
