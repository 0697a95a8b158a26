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

  // Within [low, high], in ascending order.
  std::vector<double> ticks() const;
  // The number with as many decimals as the ticks need to differ.
  std::string label(double tick) const;
  // The value's place on the axis: 0 at `low`, 1 at `high`.
  double position(double value) const { return (value - low) / (high - low); }
};

// An axis whose bounds are ticks, which contains [low, high] and has about `intervals` steps. `low` and `high` have to
// be finite.
PlotAxis round_axis(double low, double high, int intervals);
// An axis from `first` to `last` with at most `most` ticks, at whole numbers only.
PlotAxis count_axis(int first, int last, int most);

// So many digits or more, without an exponent where the number is short enough: "0.01234", "199300", "1.234e+09".
std::string plain_number(double value, int digits = 4);

}  // namespace lockstep
