// Internal: draws one panel of a plot as SVG elements. Their classes get colors from the picture or the page around it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/train/plot.h"
#include "lockstep/train/plot_axis.h"

namespace lockstep {

// Colors of curves: classes s0 to s5 (lines) and f0 to f5 (dots).
inline constexpr std::size_t kCurveColors = 6;
inline constexpr int kLegendRowHeight = 20;

// Position of a panel, in pixels of the picture.
struct PanelPlace {
  int left = 0, width = 0;
  int legend = 0;  // the middle of its first row
  int legend_left = 0;
  int top = 0, height = 0;
};

struct PanelOptions {
  PlotAxis x{};
  std::string_view x_name{};
  std::size_t first_color = 0;
  // The vertical axis is logarithmic if all values are positive and the largest is 30 times the smallest, or more.
  bool may_be_logarithmic = false;
  // Lines carry their points as attributes, for a script: data-x, data-y, and data-name.
  bool with_points = false;
};

bool has_values(const PlotPanel& panel);
// Returns an axis that covers all panels and the range of the options.
PlotAxis horizontal_axis(std::span<const PlotPanel> panels, const PlotAxisOptions& options, int most_ticks = 10);
void draw_panel(std::string& svg, const PlotPanel& panel, const PanelPlace& place, const PanelOptions& options);

struct PanelPictureOptions {
  PlotAxisOptions x{};
  std::size_t first_color = 0;
  bool may_be_logarithmic = false;
};

// Returns a panel as an SVG element of its own, with points for a script. The page around it gives the colors. Its
// width suits a phone.
std::string panel_svg(const PlotPanel& panel, const PanelPictureOptions& options = {});

}  // namespace lockstep
