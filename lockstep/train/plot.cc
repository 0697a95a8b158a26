#include "lockstep/train/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/train/markup.h"
#include "lockstep/train/plot_panel.h"

namespace lockstep {
namespace {

// Pixels of the SVG at its nominal width; it scales.
constexpr int kWidth = 820, kLeft = 58, kRight = 28, kGap = 76;
constexpr int kPanelHeight = 200, kTop = 54, kBelow = 66;
constexpr std::size_t kMostTitle = 88;

constexpr std::string_view kStyle = R"(  <style>
    text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; fill: #4b5563 }
    .title { font-size: 16px; font-weight: 600; fill: #111827 }
    .name { font-size: 13px; font-weight: 600; fill: #111827 }
    .tick-x, .axis-name { text-anchor: middle }
    .tick-y { text-anchor: end }
    .paper { fill: #ffffff }
    .grid { stroke: #e5e7eb }
    .axis { stroke: #9ca3af }
    .line { fill: none; stroke-width: 2.25; stroke-linejoin: round; stroke-linecap: round }
    .marker { stroke: #ffffff; stroke-width: 1.25 }
    .s0 { stroke: #2563eb } .s1 { stroke: #d9480f } .s2 { stroke: #15803d }
    .s3 { stroke: #7c3aed } .s4 { stroke: #a16207 } .s5 { stroke: #0e7490 }
    .f0 { fill: #2563eb } .f1 { fill: #d9480f } .f2 { fill: #15803d }
    .f3 { fill: #7c3aed } .f4 { fill: #a16207 } .f5 { fill: #0e7490 }
    @media (prefers-color-scheme: dark) {
      text { fill: #9ca3af }
      .title, .name { fill: #f3f4f6 }
      .paper { fill: #111827 }
      .grid { stroke: #293241 }
      .axis { stroke: #6b7280 }
      .marker { stroke: #111827 }
      .s0 { stroke: #60a5fa } .s1 { stroke: #fb923c } .s2 { stroke: #4ade80 }
      .s3 { stroke: #c4b5fd } .s4 { stroke: #facc15 } .s5 { stroke: #67e8f9 }
      .f0 { fill: #60a5fa } .f1 { fill: #fb923c } .f2 { fill: #4ade80 }
      .f3 { fill: #c4b5fd } .f4 { fill: #facc15 } .f5 { fill: #67e8f9 }
    }
  </style>
)";

// Returns at most this many characters of UTF-8; the last one is an ellipsis if text was cut off.
std::string cut(std::string_view text, std::size_t most) {
  std::size_t characters = 0, end = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) continue;  // inside a character
    if (characters == most - 1) end = i;
    if (++characters > most) return std::string(text.substr(0, end)) + "…";
  }
  return std::string(text);
}

}  // namespace

std::string plot_svg(std::span<const PlotPanel> panels, const PlotOptions& options) {
  struct Drawn {
    const PlotPanel* panel;
    std::size_t color;  // index of the color of its first curve; empty panels count, too
  };
  std::vector<Drawn> drawn;
  std::size_t color = 0;
  for (const PlotPanel& panel : panels) {
    if (has_values(panel)) drawn.push_back({&panel, color});
    color += panel.curves.size();
  }
  const PlotPanel none;
  if (drawn.empty()) drawn.push_back({panels.empty() ? &none : panels.data(), 0});

  const int columns = drawn.size() == 1 ? 1 : 2;
  const int width = (kWidth - kLeft - kRight - (columns - 1) * kGap) / columns;
  const PlotAxis x = horizontal_axis(panels, options.x);
  const std::string title = escape_markup(cut(options.title.empty() ? "training" : options.title, kMostTitle));
  std::string names, body;
  int top = kTop;
  for (std::size_t i = 0; i < drawn.size(); i += static_cast<std::size_t>(columns)) {
    const auto row = std::span(drawn).subspan(i, std::min<std::size_t>(columns, drawn.size() - i));
    std::size_t legends = 1;
    for (const Drawn& d : row) legends = std::max(legends, d.panel->curves.size());
    const int plot_top = top + static_cast<int>(legends) * kLegendRowHeight + 18;
    for (int column = 0; const Drawn& d : row) {
      const int before = column++ * (width + kGap);
      draw_panel(body, *d.panel,
                 {.left = kLeft + before,
                  .width = width,
                  .legend = top + 16,
                  .legend_left = kLeft + before,
                  .top = plot_top,
                  .height = kPanelHeight},
                 {.x = x, .x_name = options.x.name, .first_color = d.color});
      for (const Curve& curve : d.panel->curves) names += (names.empty() ? "" : ", ") + escape_markup(curve.name);
    }
    top = plot_top + kPanelHeight + kBelow;
  }
  const int height = top - 18;
  return fmt::format(
             R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img">
  <title>{2}: {3} by {4}</title>
{5}  <rect class="paper" width="{0}" height="{1}" rx="8"/>
  <text class="title" x="{6}" y="36">{2}</text>
)",
             kWidth, height, title, names, escape_markup(options.x.name), kStyle, kLeft) +
         body + "</svg>\n";
}

void write_plot(const std::filesystem::path& path, std::span<const PlotPanel> panels, const PlotOptions& options) {
  write_file_atomically(path, plot_svg(panels, options));
}

Animator::Animator(std::filesystem::path path, AnimatorOptions options)
    : path_(std::move(path)), options_{.title = std::move(options.title), .x = std::move(options.x)} {
  for (std::vector<std::string>& names : options.panels) {
    PlotPanel& panel = panels_.emplace_back();
    for (std::string& name : names) panel.curves.push_back({.name = std::move(name)});
  }
}

void Animator::add(double x, const std::vector<std::optional<double>>& values) {
  std::size_t curves = 0;
  for (const PlotPanel& panel : panels_) curves += panel.curves.size();
  check(values.size() == curves, "animator: {} values for {} curves, expected one for each", values.size(), curves);
  auto value = values.begin();
  for (PlotPanel& panel : panels_) {
    for (Curve& curve : panel.curves) {
      if (const std::optional<double> y = *value++) curve.points.push_back({x, *y});
    }
  }
  write_plot(path_, panels_, options_);
}

std::string Animator::svg() const { return plot_svg(panels_, options_); }

std::vector<PlotPanel> training_panels(std::span<const EpochReport> epochs) {
  Curve accuracy{
      .name = "test accuracy", .best = CurveBest::largest, .decimals = 2, .least = 0, .most = 1, .least_range = 0.1};
  Curve loss{.name = "train loss", .decimals = 3};
  for (const EpochReport& e : epochs) {
    const auto x = static_cast<double>(e.epoch);
    accuracy.points.push_back({x, e.test.total > 0 ? e.test.value() : std::numeric_limits<double>::quiet_NaN()});
    loss.points.push_back({x, e.train_loss});
  }
  return {{{std::move(accuracy)}}, {{std::move(loss)}}};
}

std::string training_plot_svg(std::span<const EpochReport> epochs, const TrainingPlotOptions& options) {
  PlotOptions plot{.title = options.title};
  if (options.epochs > 0) plot.x.high = options.epochs;
  return plot_svg(training_panels(epochs), plot);
}

void write_training_plot(const std::filesystem::path& path, std::span<const EpochReport> epochs,
                         const TrainingPlotOptions& options) {
  write_file_atomically(path, training_plot_svg(epochs, options));
}

}  // namespace lockstep
