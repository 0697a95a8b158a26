// Internal: the scale of one axis of a plot: bounds and ticks at round numbers.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Ticks are at multiples of `step`, which is 1, 2, or 5 times a power of ten.
struct PlotAxis {
  double low = 0;
  double high = 1;
  double step = 1;

  // Returns the ticks within [low, high], in ascending order.
  std::vector<double> ticks() const;
  // Returns a tick as text, with as many decimals as the ticks need to differ.
  std::string label(double tick) const;
  // Returns the position of a value on the axis: 0 at `low`, 1 at `high`.
  double position(double value) const { return (value - low) / (high - low); }
};

// Returns an axis that contains [low, high], whose bounds are ticks, with about `intervals` steps. `low` and `high`
// must be finite.
PlotAxis round_axis(double low, double high, int intervals);
// Returns an axis from `first` to `last` with at most `most` ticks, at whole numbers only.
PlotAxis count_axis(int first, int last, int most);

// Returns the value with up to `digits` digits, or as a whole number below 1e9: "0.01234", "199300", "1.234e+09".
std::string plain_number(double value, int digits = 4);

}  // namespace lockstep
